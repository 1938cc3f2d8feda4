"""What the file methods give back. Plain frozen data; what comes from inside is checked here, once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, cast

from fumehood.errors import SandboxError
from fumehood.frozen import frozen
from fumehood.guest.contract.frames import is_shallow

_MOST_NAMED = 1000
_MAX_NAME_BYTES = 255
_MAX_TARGET_CHARACTERS = 4096
_MAX_DEPTH = 4
_DIGEST_CHARACTERS = 64


class FileKind(StrEnum):
    FILE = "file"
    FOLDER = "folder"
    LINK = "link"
    PIPE = "pipe"
    SOCKET = "socket"
    DEVICE = "device"


@frozen
class FileEntry:
    """One name in the sandbox. Bytes of a name that are not UTF-8 are lone surrogates, as in `os.listdir`."""

    name: str
    kind: FileKind
    size: int
    mode: int
    modified: float
    """Seconds since 1970; a program can set it to anything."""
    target: str | None
    """The target of a link, as it is written in it."""
    version: tuple[int, int]
    """Changes, or the size does, when a program writes to the file."""
    modified_ns: int = 0
    """`modified`, as exact as the file system keeps it."""
    sha256: str | None = None
    """Of a file, where it was asked for."""
    uid: int = 0
    """The owner, as programs of the sandbox see it."""
    gid: int = 0


class ChangeKind(StrEnum):
    CREATED = "created"
    MODIFIED = "modified"
    """Its content, its mode or what it is."""
    DELETED = "deleted"
    RENAMED = "renamed"
    OVERFLOW = "overflow"
    """There was more than can be listed: look at the folder again."""


@frozen
class FileChange:
    """A change in a folder that is watched; of several changes to one file, the last."""

    kind: ChangeKind
    path: str
    """As `files` takes it; of an overflow, or when it is deleted itself, the folder that is watched."""
    old_path: str | None = None
    """Of what was renamed."""


_PLAIN_CHANGES = ("created", "modified", "deleted")
RawChange = tuple[ChangeKind, str, str | None]
"""Paths below the folder that is watched."""


@frozen
class Skipped:
    """Something that was not copied, and why."""

    path: str
    reason: str


@frozen
class Transfer:
    """What an upload or a download has copied."""

    files: int
    bytes: int
    skipped: tuple[Skipped, ...]
    """The first thousand."""
    skipped_count: int


class TransferCount:
    """A transfer under way."""

    def __init__(self) -> None:
        self.files = 0
        self.bytes = 0
        self._skipped: list[Skipped] = []
        self._skipped_count = 0

    def add(self, size: int) -> None:
        self.files += 1
        self.bytes += size

    def skip(self, path: str, reason: str) -> None:
        self._skipped_count += 1
        if len(self._skipped) < _MOST_NAMED:
            self._skipped.append(Skipped(path, reason))

    def total(self) -> Transfer:
        return Transfer(self.files, self.bytes, tuple(self._skipped), self._skipped_count)


def parse_entries(body: bytes) -> list[FileEntry]:
    """Parses and validates entries from the file service, which is not trusted."""
    if not is_shallow(body, _MAX_DEPTH):
        raise _broken("a list that is nested too deeply")
    try:
        items = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _broken("a list that is not JSON") from error
    if not isinstance(items, list):
        raise _broken("no list")
    return [parse_entry(item) for item in cast("list[object]", items)]


def parse_changes(body: bytes) -> list[RawChange]:
    """Parses and validates changes from the file service, which is not trusted."""
    if not is_shallow(body, _MAX_DEPTH):
        raise _broken("changes that are nested too deeply")
    try:
        items = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _broken("changes that are not JSON") from error
    if not isinstance(items, list):
        raise _broken("no list")
    return [_parse_change(item) for item in cast("list[object]", items)]


def _parse_change(item: object) -> RawChange:
    match item:
        case ["overflow", ""]:
            return ChangeKind.OVERFLOW, "", None
        case ["deleted", ""]:
            return ChangeKind.DELETED, "", None
        case ["renamed", str(path), str(old)] if _is_path(path) and _is_path(old):
            return ChangeKind.RENAMED, path, old
        case [str(kind), str(path)] if kind in _PLAIN_CHANGES and _is_path(path):
            return ChangeKind(kind), path, None
        case _:
            raise _broken("a change that makes no sense")


def _is_path(path: str) -> bool:
    return all(map(is_name, path.split("/")))


def parse_entry(item: object) -> FileEntry:
    if not isinstance(item, dict):
        raise _broken("an entry that is no object")
    fields = cast("Mapping[str, Any]", item)
    try:
        kind, (inode, changed_ns) = FileKind(fields["kind"]), fields["version"]
        numbers = [fields["size"], fields["mode"], fields["modified_ns"], inode, changed_ns]
        owners = [fields["uid"], fields["gid"]]
        name, target = fields["name"], fields["target"]
    except (KeyError, ValueError, TypeError) as error:
        raise _broken("an entry that is not complete") from error
    if not all(type(number) is int for number in (*numbers, *owners)) or fields["size"] < 0:
        raise _broken("an entry with a number that makes no sense")
    if not is_name(name) or (target is not None and not _is_target(target)):
        raise _broken("a name that no file can have")
    digest = fields.get("sha256")
    if digest is not None and not _is_digest(digest):
        raise _broken("a digest that is none")
    size, mode, modified_ns = numbers[:3]
    seconds, version = modified_ns / 1e9, (inode, changed_ns)
    return FileEntry(name, kind, size, mode, seconds, target, version, modified_ns, digest, *owners)


def _is_digest(digest: object) -> bool:
    return isinstance(digest, str) and len(digest) == _DIGEST_CHARACTERS and not set(digest) - set("0123456789abcdef")


def is_name(name: object) -> bool:
    """Whether this is a single name, which cannot be part of a path that leads elsewhere."""
    if not isinstance(name, str) or name in ("", ".", "..") or "/" in name or "\0" in name:
        return False
    try:
        return len(name.encode("utf-8", "surrogateescape")) <= _MAX_NAME_BYTES
    except UnicodeEncodeError:
        return False


def _is_target(target: object) -> bool:
    return isinstance(target, str) and "\0" not in target and len(target) <= _MAX_TARGET_CHARACTERS


def _broken(what: str) -> SandboxError:
    return SandboxError(f"the sandbox's file service broke the protocol: it sent {what}")
