"""Paths of a policy on the host (made absolute) and in the sandbox (kept off what that owns), and patterns of paths.

Purely lexical: whether a path exists, or is a link, is for the backend to find out. In a pattern, `*`, `?` and `[...]`
stand for characters of one name, hidden names included; `**` stands for any number of folders, and
at the end for everything below. Matching is linear in the path.
"""

from __future__ import annotations

import fnmatch
import os
import posixpath
import re
from typing import Annotated, cast

from pydantic import AfterValidator, BeforeValidator, ValidationInfo

from fumehood.policy.section import Text
from fumehood.policy.source import PolicySource

_ANY_DEPTH = "**"


class PathGlob:
    """Follows all readings of one pattern at once; a state is the number of its parts that are behind us."""

    def __init__(self, pattern: str) -> None:
        parts = pattern.split("/")
        self._end = len(parts)
        self._parts = [None if part == _ANY_DEPTH else re.compile(fnmatch.translate(part)) for part in parts]

    def accepts(self, path: str) -> bool:
        return self._end in self._states_after(path)

    def goes_on_below(self, folder: str) -> bool:
        return any(state < self._end for state in self._states_after(folder))

    def _states_after(self, path: str) -> set[int]:
        states = self._with_skipped({0})
        for name in path.split("/") if path else ():
            states = self._with_skipped({after for state in states for after in self._step(state, name)})
            if not states:
                break
        return states

    def _step(self, state: int, name: str) -> tuple[int, ...]:
        if state == self._end:
            return ()
        part = self._parts[state]
        if part is not None:
            return (state + 1,) if part.match(name) else ()
        return (state, self._end) if state + 1 == self._end else (state,)

    def _with_skipped(self, states: set[int]) -> set[int]:
        """`**` may stand for no folder at all, but at the end for at least one name."""
        complete = set(states)
        for state in range(self._end - 1):
            if state in complete and self._parts[state] is None:
                complete.add(state + 1)
        return complete


WORKSPACE = "/workspace"
USER_HOME = "/home/user"
"""A second name of the workspace, on the native backend."""
TMP = "/tmp"
SYSTEM_PATHS = (
    *("/proc", "/sys", "/dev", "/run", "/tmp", "/var/tmp", "/var/empty", "/etc", "/usr"),
    *("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"),
)


def is_inside(path: str, folder: str) -> bool:
    """True for the folder itself and for everything below it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _as_text(value: object) -> object:
    return os.fspath(cast("os.PathLike[str]", value)) if isinstance(value, os.PathLike) else value


def _resolve(path: str, info: ValidationInfo) -> str:
    """Absolute and normalised, so that what is linted and digested is what gets opened."""
    expanded = os.path.expanduser(path)
    if expanded.startswith("~"):
        raise ValueError("names the home of a user who does not exist; write the path out")
    source = info.context
    base = source.base if isinstance(source, PolicySource) and source.base is not None else _current_folder(expanded)
    return _normalise(os.path.join(base, expanded))


def _current_folder(path: str) -> str:
    try:
        return "/" if os.path.isabs(path) else os.getcwd()
    except FileNotFoundError:
        raise ValueError("is relative, and the current folder no longer exists; write an absolute path") from None


def _normalise(path: str) -> str:
    # POSIX keeps exactly two leading slashes apart; Linux does not.
    return posixpath.normpath("/" + path.lstrip("/"))


def check_target(path: str) -> str:
    """A place in the sandbox where a mount may go."""
    target = _check_absolute(path)
    if target == "/":
        raise ValueError("is the root of the sandbox; mount at a folder of its own, such as /data")
    for owned in SYSTEM_PATHS:
        if is_inside(target, owned):
            raise ValueError(f"is inside {owned}, which the sandbox masks with its own; choose a path such as /data")
        if is_inside(owned, target):
            raise ValueError(f"would cover {owned}, which is the sandbox's own; choose a path such as /data")
    if is_inside(target, WORKSPACE):
        raise ValueError(f"is inside {WORKSPACE}, which is made anew for each sandbox; choose a path such as /data")
    return target


def _check_absolute(path: str) -> str:
    if not path.startswith("/"):
        raise ValueError("must be an absolute path in the sandbox, such as /data")
    if ".." in path.split("/"):
        raise ValueError("must not contain ..; write where it leads")
    return _normalise(path)


def _check_reached(path: str) -> str:
    return _check_absolute(path if path.startswith("/") else f"{WORKSPACE}/{path}")


def _check_glob(pattern: str) -> str:
    inner = pattern.removeprefix(f"{TMP}/")
    if inner.startswith("/") or ".." in inner.split("/"):
        raise ValueError("is relative to the workspace and stays in it, such as out/**, or begins with /tmp/")
    if any(part in ("", ".") for part in inner.split("/")):
        raise ValueError("has a part that names nothing; write out/** for everything below out")
    return pattern


HostPath = Annotated[Text, BeforeValidator(_as_text), AfterValidator(_resolve)]
TargetPath = Annotated[Text, BeforeValidator(_as_text), AfterValidator(check_target)]
ReachedPath = Annotated[Text, AfterValidator(_check_reached)]
OutputGlob = Annotated[Text, AfterValidator(_check_glob)]
