"""The text of a policy, from a file or from memory, parsed to data that the model can check.

Whatever is wrong with a file is a PolicyError.
"""

from __future__ import annotations

import errno
import os
import re
import stat

from fumehood.errors import PolicyError
from fumehood.policy.source import PolicyProblem, PolicySource, UnreadableError, visible

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
