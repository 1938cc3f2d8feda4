"""What is in a snapshot: paths, kinds, modes, times and digests. Its own digest is the snapshot's id.

Equal content is equal text: entries are sorted, and JSON is written in one way.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, Self, cast

from fumehood.errors import DamagedSnapshotError

EntryKind = Literal["file", "folder", "link"]

_FORMAT = 1
_DIGEST = re.compile(r"[0-9a-f]{64}")
_MAX_NAME_BYTES, _MAX_PATH_BYTES, _MAX_TARGET_BYTES, _MAX_DEPTH = 255, 64 * 1024, 4095, 100
# Enough for every time that a file system can keep.
_MAX_TIME_NS = 2**63 - 1


class EntryError(Exception):
    """An entry that no snapshot can have; says of which path, and why."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path!r}: {why}")
        self.path, self.why = path, why


@dataclass(frozen=True, slots=True)
class SnapshotEntry:
    path: str
    """Below the workspace. Bytes that are not UTF-8 are lone surrogates, as in `os.listdir`."""
    kind: EntryKind
    mode: int = 0
    """Permission bits alone; of a link it means nothing."""
    modified_ns: int = 0
    size: int = 0
    sha256: str = ""
    target: str = ""

    def as_json(self) -> list[str | int]:
        match self.kind:
            case "file":
                return ["file", self.path, self.mode, self.modified_ns, self.size, self.sha256]
            case "folder":
                return ["folder", self.path, self.mode, self.modified_ns]
            case "link":
                return ["link", self.path, self.target]

    @classmethod
    def parse(cls, item: list[Any]) -> Self:
        match item:
            case ["file", str(path), int(mode), int(modified_ns), int(size), str(sha256)]:
                return cls(path, "file", mode, modified_ns, size, sha256)
            case ["folder", str(path), int(mode), int(modified_ns)]:
                return cls(path, "folder", mode, modified_ns)
            case ["link", str(path), str(target)]:
                return cls(path, "link", target=target)
            case _:
                raise ValueError("an entry of an unknown kind")


@dataclass(frozen=True, slots=True)
class SnapshotManifest:
    entries: tuple[SnapshotEntry, ...]
    """By path: a folder comes before what is in it."""
    data: bytes = field(repr=False)
    id: str
    """The digest of `data`."""

    @classmethod
    def of(cls, entries: Iterable[SnapshotEntry]) -> Self:
        """Raises EntryError for what could lead elsewhere, or could not be written as it is."""
        ordered = tuple(sorted(entries, key=lambda entry: entry.path.split("/")))
        _check(ordered)
        document = {"format": _FORMAT, "entries": [entry.as_json() for entry in ordered]}
        data = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii")
        return cls(ordered, data, hashlib.sha256(data).hexdigest())

    @classmethod
    def parse(cls, data: bytes, identifier: str) -> Self:
        if hashlib.sha256(data).hexdigest() != identifier:
            raise DamagedSnapshotError(identifier, "its manifest is not what was written")
        try:
            document = cast("dict[str, Any]", json.loads(data))
            made = cls.of(SnapshotEntry.parse(item) for item in document["entries"])
        except (ValueError, KeyError, TypeError, EntryError) as error:
            raise DamagedSnapshotError(identifier, f"its manifest cannot be read: {error}") from error
        if made.id != identifier:
            raise DamagedSnapshotError(identifier, "its manifest has another format than this version of Fumehood")
        return made

    @property
    def files(self) -> list[SnapshotEntry]:
        return [entry for entry in self.entries if entry.kind == "file"]

    @property
    def size_bytes(self) -> int:
        return sum(entry.size for entry in self.entries)

    @property
    def digests(self) -> dict[str, int]:
        """The digest of each content -> its size."""
        return {entry.sha256: entry.size for entry in self.files}


def _check(entries: tuple[SnapshotEntry, ...]) -> None:
    folders, seen = {""}, set[str]()
    for entry in entries:
        check_path(entry.path)
        if entry.path in seen:
            raise EntryError(entry.path, "it is there twice")
        seen.add(entry.path)
        if entry.path.rpartition("/")[0] not in folders:
            raise EntryError(entry.path, "what it is in is not a folder")
        if entry.kind == "folder":
            folders.add(entry.path)
        _check_values(entry)


def check_path(path: str) -> None:
    """EntryError for one that is not plainly below the workspace."""
    names = path.split("/")
    if len(names) > _MAX_DEPTH:
        raise EntryError(path[:200], f"it is more than {_MAX_DEPTH} folders deep")
    if any(name in ("", ".", "..") or "\0" in name for name in names):
        raise EntryError(path, "it is not a path below the workspace")
    try:
        sizes = [len(name.encode("utf-8", "surrogateescape")) for name in names]
    except UnicodeEncodeError:
        raise EntryError(path, "it has a character that no name can have") from None
    if max(sizes) > _MAX_NAME_BYTES or sum(sizes) + len(names) > _MAX_PATH_BYTES:
        raise EntryError(path[:200], f"a name of it has more than {_MAX_NAME_BYTES} bytes, or it is too long")


def _check_values(entry: SnapshotEntry) -> None:
    if not 0 <= entry.mode <= 0o777:
        raise EntryError(entry.path, f"its mode {entry.mode:o} has more than permissions, such as set-uid")
    if abs(entry.modified_ns) > _MAX_TIME_NS or entry.size < 0:
        raise EntryError(entry.path, "its time or its size is out of range")
    if entry.kind == "file" and not _DIGEST.fullmatch(entry.sha256):
        raise EntryError(entry.path, "it has no digest")
    if entry.kind == "link" and not _is_target(entry.target):
        raise EntryError(entry.path[:200], "it is a link to what no path can be")


def _is_target(target: str) -> bool:
    try:
        return 0 < len(target.encode("utf-8", "surrogateescape")) <= _MAX_TARGET_BYTES and "\0" not in target
    except UnicodeEncodeError:
        return False
