"""The text of a policy, where it came from, and the mistakes found in it so far.

Owns how a mistake is written down, `file:line: key: message`, and that whatever is wrong with a file is a PolicyError.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import field

from fumehood.errors import PolicyError
from fumehood.frozen import frozen

Path = tuple[str | int, ...]
MAX_SHOWN = 60


@frozen
class PolicyProblem:
    """One mistake: at which key, and what is wrong with it."""

    path: Path
    message: str
    line: int | None = None


class UnreadableError(Exception):
    """The text is not a policy at all, so that no further mistake in it can be named."""

    def __init__(self, message: str, line: int, path: Path = ()) -> None:
        super().__init__(message)
        self.problem = PolicyProblem(path, message, line)


@frozen
class PolicySource:
    """The text behind a policy: its name, the line of each key, and the folder that relative paths start from."""

    name: str | None = None
    base: str | None = None
    lines: Mapping[Path, int] = field(default_factory=dict[Path, int])
    problems: tuple[PolicyProblem, ...] = ()

    def report(self, problems: list[PolicyProblem]) -> list[str]:
        """All mistakes in the order of the file. One key, one mistake: a consequence of another is left out."""
        broken = {problem.path for problem in self.problems}
        fresh = [problem for problem in problems if not any(p in broken for p in _prefixes(problem.path))]
        return [self._write(problem) for problem in sorted([*self.problems, *fresh], key=self._line)]

    def _line(self, problem: PolicyProblem) -> int:
        if problem.line is not None:
            return problem.line
        return next((self.lines[path] for path in _prefixes(problem.path) if path in self.lines), 1)

    def _write(self, problem: PolicyProblem) -> str:
        place = f"{visible(self.name)}:{self._line(problem)}: " if self.name is not None else ""
        key = f"{dotted(problem.path)}: " if problem.path else ""
        return f"{place}{key}{problem.message}"


def dotted(path: Path) -> str:
    """The key as people write it: `filesystem.mounts[0].source`."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{visible(part[:MAX_SHOWN])}" for part in path)
    return "".join(parts).removeprefix(".")


def visible(text: str) -> str:
    """A name from outside, safe to print on one line."""
    return text if text.isprintable() else ascii(text)


def shown(value: object) -> str:
    """A value in an error: on one line, and no longer than helps."""
    if isinstance(value, int) and abs(value) >= 10**MAX_SHOWN:
        return f"a number of {value.bit_length()} bits"
    text = repr(value)
    if not text.isprintable():
        text = ascii(value)
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "..."


def _prefixes(path: Path) -> list[Path]:
    """The path and its parents, nearest first."""
    return [path[:length] for length in range(len(path), -1, -1)]


MAX_BYTES = 1024 * 1024
_TOML = "looks like TOML; a policy is YAML, such as `resources: {memory: 1G, timeout: 30s}`"
_TOML_LINE = re.compile(rb"^[ \t]*(?:\[\[?[\w.-]+\]\]?[ \t]*$|[\w.-]+[ \t]*=[ \t]*\S)", re.MULTILINE)


def read_file(path: str | os.PathLike[str]) -> bytes:
    """The bytes of a policy file."""
    name = os.fspath(path)
    try:
        with open(name, "rb", opener=_open_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise OSError(errno.EINVAL, "it is not a regular file")
            return file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise PolicyError([f"{visible(name)}: cannot be read: {_reason(error)}"]) from error


def depends_on_homes(text: bytes) -> bool:
    """Whether a path in it may begin with `~`, written as such or as an escape: homes of users can change."""
    return b"~" in text or b"\\" in text


def parse(text: str | bytes, *, name: str, base: str | None) -> tuple[dict[str, object], PolicySource]:
    """The data of a policy and where each key of it stands."""
    from fumehood.policy.document import Document

    try:
        document = Document(_decode(text))
    except UnreadableError as error:
        problem = PolicyProblem((), _TOML, 1) if _is_toml(text) else error.problem
        raise PolicyError(PolicySource(name, base, problems=(problem,)).report([])) from None
    return document.data, PolicySource(name, base, document.lines, tuple(document.problems))


def _is_toml(text: str | bytes) -> bool:
    data = text.encode("utf-8", "replace") if isinstance(text, str) else text
    return _TOML_LINE.search(data, 0, MAX_BYTES) is not None


def _open_at_once(name: str, flags: int) -> int:
    # A pipe in the place of the file would otherwise block us until a process writes to it.
    return os.open(name, flags | os.O_NONBLOCK)


def _decode(text: str | bytes) -> str:
    if len(text) > MAX_BYTES:
        raise UnreadableError("is larger than 1 MiB; no policy is", 1)
    if isinstance(text, str):
        return text
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        raise UnreadableError("is not UTF-8 text; save the file as UTF-8", line) from None


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    if isinstance(error, IsADirectoryError):
        return "it is a folder; name the policy file in it"
    if isinstance(error, OSError) and error.errno == errno.ELOOP:
        return "it is a loop of symbolic links"
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
