"""Paths of a policy: on the host (made absolute) and in the sandbox (kept off what the sandbox owns).

Purely lexical: whether a path exists, or is a link, is for the backend to find out.
"""

from __future__ import annotations

import os
import posixpath
from typing import Annotated, cast

from pydantic import AfterValidator, BeforeValidator, ValidationInfo

from fumehood.policy.section import Text
from fumehood.policy.source import PolicySource

WORKSPACE = "/workspace"
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
