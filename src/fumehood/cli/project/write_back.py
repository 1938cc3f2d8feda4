"""Writes what a program changed to the host's folder: file by file, each as a whole or not at all.

The folder is the host's and may have changed meanwhile; the names are the program's. Every step goes by descriptors
and through no link, and a file is replaced only if it still is what went into the sandbox.
"""

from __future__ import annotations

import hashlib
import os
import stat
from contextlib import suppress
from dataclasses import dataclass

from fumehood.guest.contract.paths import hidden_name
from fumehood.host.folder_tree import FolderTree, Names, names_in

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# Folders whose content tools execute without being asked, and files that Python executes instead of their sources.
_NEVER = frozenset({".git", ".hg", ".svn", ".venv", "venv", "node_modules"})
# What makes such a folder of one with any name: to git a folder with HEAD is a repository, whose `config` can name
# programs; to Python one with pyvenv.cfg is an environment.
_MARKS = ("HEAD", "pyvenv.cfg")
_EXECUTED = "tools execute what lies there, so it is never written back"
_CHANGED = "it has changed on the host since it was copied"
_THERE = "it exists on the host, and was not copied into the sandbox"


@dataclass(frozen=True, slots=True)
class ProjectChange:
    path: str
    before: str | None
    """The digest of the file that went into the sandbox; None if there was none."""
    content: bytes | None
    """None if it is to be deleted."""

    def is_nothing(self) -> bool:
        """Whether it was written with what was there."""
        return self.content is not None and hashlib.sha256(self.content).hexdigest() == self.before


class ConflictError(Exception):
    """A change that is not written; says why."""


def reason_against(path: str, *, is_asked: bool) -> str | None:
    """Why a path is not written back, whatever the policy says; `is_asked` if a person sees it first."""
    names = path.lower().split("/")
    is_mark = names[-1] in map(str.lower, _MARKS) or names[-1].endswith(".pth")
    if is_mark or not _NEVER.isdisjoint(names) or is_compiled_python(path):
        return _EXECUTED
    if is_asked:
        return None
    if any(name.startswith(".") for name in names):
        return "tools read hidden files unasked, so --yes does not write them; without --yes you are asked"
    if names[-1].endswith(".so"):
        return "Python imports it in place of a source, so --yes does not write it; without --yes you are asked"
    return None


class ExecutedFolders:
    """Folders of the host that are repositories or environments, whatever they are called."""

    def __init__(self, tree: FolderTree) -> None:
        self._tree, self._known = tree, dict[Names, bool]()

    def reason_against(self, path: str) -> str | None:
        names = names_in(path)
        return _EXECUTED if any(self._is_marked(names[:count]) for count in range(len(names))) else None

    def _is_marked(self, folder: Names) -> bool:
        if folder not in self._known:
            self._known[folder] = any(self._tree.look_at((*folder, mark)) for mark in _MARKS)
        return self._known[folder]


def is_compiled_python(path: str) -> bool:
    """What Python makes by itself when a program imports its modules."""
    return "__pycache__" in path.lower().split("/") or path.lower().endswith(".pyc")


def check(tree: FolderTree, change: ProjectChange) -> bytes | None:
    """The content that would be replaced. ConflictError if it is not what went into the sandbox.

    What did not go in is not read: the program chose the name, and the file may be larger than our memory.
    """
    place = names_in(change.path)
    details = tree.look_at(place)
    if details is not None and not stat.S_ISREG(details.st_mode):
        raise ConflictError("on the host it is not a file")
    if change.before is None:
        if details is not None:
            raise ConflictError(_THERE)
        return None
    content = None if details is None else _content(tree, place)
    if content is None or hashlib.sha256(content).hexdigest() != change.before:
        raise ConflictError(_CHANGED)
    return content


def _content(tree: FolderTree, place: Names) -> bytes:
    try:
        with open(tree.open_file(place), "rb") as stream:
            return stream.read()
    except OSError as error:
        raise ConflictError(f"on the host it cannot be read: {error.strerror or error}") from error


def write(tree: FolderTree, change: ProjectChange) -> None:
    """Carries out one change. ConflictError if the host's file is no longer what it was."""
    place = names_in(change.path)
    try:
        folder = tree.open_folder(place[:-1], make=change.content is not None)
    except OSError as error:
        raise ConflictError(f"its folder on the host cannot be used: {error.strerror or error}") from error
    try:
        _write_in(tree, folder, place, change)
    except OSError as error:
        raise ConflictError(f"it cannot be written: {error.strerror or error}") from error
    finally:
        os.close(folder)


def _write_in(tree: FolderTree, folder: int, place: Names, change: ProjectChange) -> None:
    name, draft = place[-1], hidden_name()
    if change.content is None:
        check(tree, change)
        os.unlink(name, dir_fd=folder)
        return
    try:
        _make_draft(folder, draft, change.content, None if change.before is None else tree.look_at(place))
        check(tree, change)
        if change.before is None:
            _publish_new(folder, draft, name)
        else:
            os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=folder)


def _make_draft(folder: int, draft: str, content: bytes, like: os.stat_result | None) -> None:
    """A file replaces one with the same mode and owner. A new one is data: nothing executable."""
    with open(os.open(draft, _NEW_FILE, 0o644 if like is None else 0o600, dir_fd=folder), "wb") as stream:
        stream.write(content)
        if like is not None:
            if like.st_uid != os.geteuid() or like.st_gid != os.getegid():
                with suppress(PermissionError):
                    os.fchown(stream.fileno(), like.st_uid, like.st_gid)
            os.fchmod(stream.fileno(), like.st_mode & 0o777)


def _publish_new(folder: int, draft: str, name: str) -> None:
    """Never over anything."""
    try:
        os.link(draft, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except FileExistsError:
        raise ConflictError(_THERE) from None
