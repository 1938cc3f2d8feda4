"""Paths in the sandbox, as callers write them: checked and brought to one spelling. Lexical; nothing is looked up."""

from __future__ import annotations

import os
import posixpath
from typing import cast

from fumehood.errors import UsageError
from fumehood.policy.paths import TMP, WORKSPACE, is_inside

_MAX_PATH_BYTES = 64 * 1024
# Made anew for every run, and for the file service as well: a request would not see a run's files there.
_OF_EACH_RUN = (TMP, "/run", "/dev", "/proc")

AnyPath = str | os.PathLike[str]


def sandbox_path(path: AnyPath, *, keeps_tmp: bool = False) -> str:
    """Relative to the workspace, which itself is the empty path; absolute for all that is elsewhere."""
    text = _checked(path)
    # POSIX keeps exactly two leading slashes apart; Linux does not.
    normal = posixpath.normpath("/" + text.lstrip("/") if text.startswith("/") else text or ".")
    if normal.startswith("/"):
        return _absolute(normal, keeps_tmp)
    if normal == ".." or normal.startswith("../"):
        raise UsageError(f"{text!r} leads out of the workspace; name other places by their absolute path")
    return "" if normal == "." else normal


def names_folder(path: AnyPath) -> bool:
    """A path that can only be a folder: things go into it, not in its place."""
    text = os.fspath(path)
    return text.endswith(("/", "/.")) or sandbox_path(path, keeps_tmp=True) in ("", TMP)


def shown(path: str) -> str:
    """The path for a message: one line, whatever the path has in it."""
    return repr(path) if path else "the workspace"


def joined(folder: str, name: str) -> str:
    return f"{folder.rstrip('/')}/{name}" if folder else name


def _checked(path: AnyPath) -> str:
    text = cast("str | bytes", os.fspath(path))
    if not isinstance(text, str):
        raise UsageError(f"path {text!r} must be text; use os.fsdecode for names that are bytes")
    if "\0" in text:
        raise UsageError(f"path {text!r} has a NUL character, which no path can have")
    try:
        size = len(text.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError as error:
        raise UsageError(f"path {text!r} has a character that cannot be encoded at position {error.start}") from error
    if size > _MAX_PATH_BYTES:
        raise UsageError(f"path {text[:40]!r}... has {size} bytes, more than {_MAX_PATH_BYTES}")
    return text


def _absolute(path: str, keeps_tmp: bool) -> str:
    if path == WORKSPACE:
        return ""
    if is_inside(path, WORKSPACE):
        return path.removeprefix(f"{WORKSPACE}/")
    for folder in _OF_EACH_RUN:
        if is_inside(path, folder) and not (keeps_tmp and folder == TMP):
            raise UsageError(f"{path!r} is in {folder}, which is made anew for each run; use the workspace")
    return path


def stays_inside(link: str, target: str) -> bool:
    """`link` is the link's path below the top of the tree.

    A target goes up first and then down by names, never up again: then no other link on its way can turn a step up into
    one that leaves. Links that all do so cannot be combined to leave, either.
    """
    parts = target.split("/")
    ups = 0
    while ups < len(parts) and parts[ups] == "..":
        ups += 1
    names = parts[ups:]
    return bool(names) and ups <= link.count("/") and all(name not in ("", ".", "..") for name in names)
