"""Contents by digest: each once, however many snapshots have it, and complete or not there at all."""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from fumehood.snapshots.durability import MOST_SYNCED_ALONE, sync_file, sync_file_system, sync_folder
from fumehood.snapshots.limits import charge

CHUNK_BYTES = 1024 * 1024
# So much is written before the store is asked again whether there is room for it.
_UNCHECKED_BYTES = 16 * 1024 * 1024
_SETTLED_NS = 2_000_000_000
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def _has_room() -> None:
    """For a store without a limit."""


class BlobStore:
    """`check_room` raises when the contents that are being written would not fit."""

    def __init__(self, root: Path, temporary: Path, check_room: Callable[[], None] = _has_room) -> None:
        self.root, self._temporary, self._check_room = root, temporary, check_room
        self._counted: dict[str, tuple[int, int]] = {}
        """Folder -> when it changed last, and what its contents are charged."""

    def path(self, digest: str) -> Path:
        return self.root / digest[:2] / digest

    def has(self, digest: str, size: int) -> bool:
        """Whether it is there, as long as it should be. Whoever reads it computes the digest."""
        try:
            return self.path(digest).stat().st_size == size
        except FileNotFoundError:
            return False

    def is_whole(self, digest: str) -> bool:
        try:
            with self.path(digest).open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest() == digest
        except FileNotFoundError:
            return False

    def digests(self) -> Iterator[tuple[str, int]]:
        """Every blob, with its size on disk."""
        for folder in sorted(os.scandir(self.root), key=lambda entry: entry.name):
            for entry in os.scandir(folder.path):
                with suppress(FileNotFoundError):  # another process collects garbage
                    yield entry.name, entry.stat(follow_symlinks=False).st_size

    def charged_bytes(self) -> int:
        """Of all contents. A folder whose names have not changed since it was counted is not counted again."""
        total = 0
        for folder in os.scandir(self.root):
            changed_ns = folder.stat(follow_symlinks=False).st_mtime_ns
            counted_ns, charged = self._counted.get(folder.name, (0, 0))
            if counted_ns != changed_ns:
                charged = _charged_in(folder.path)
                # The clock of a file system is coarse: what changed just now may change again at the same time.
                if time.time_ns() - changed_ns > _SETTLED_NS:
                    self._counted[folder.name] = (changed_ns, charged)
            total += charged
        return total

    def batch(self) -> BlobBatch:
        return BlobBatch(self, self._temporary, self._check_room)


def _charged_in(folder: str) -> int:
    charged = 0
    for entry in os.scandir(folder):
        with suppress(FileNotFoundError):  # another process collects garbage
            charged += charge(entry.stat(follow_symlinks=False).st_size)
    return charged


class BlobDraft:
    """One content that is being written, under a name that means nothing."""

    def __init__(self, folder: Path, written: Callable[[int], None]) -> None:
        self._written = written
        self.path = folder / secrets.token_hex(16)
        self._file = os.open(self.path, _NEW_FILE, 0o600)
        self._digest = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes | memoryview) -> None:
        self._digest.update(data)
        self.size += len(data)
        _write_all(self._file, data)
        self._written(len(data))

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def close(self) -> None:
        os.close(self._file)


class BlobBatch:
    """New contents. They are in the store when `commit` has returned, and synced."""

    def __init__(self, store: BlobStore, temporary: Path, check_room: Callable[[], None]) -> None:
        self._store, self._temporary, self._check_room = store, temporary, check_room
        self._unchecked_bytes = 0
        self._drafts: dict[str, Path] = {}
        self._relies_on_others = False
        self.new_bytes = self.charged_bytes = 0

    def add(self, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        if not self._is_there(digest):
            path = self._temporary / secrets.token_hex(16)
            self._keep(digest, path, len(data))
            _write_new(path, data)
            self._count(len(data))
        return digest

    def begin(self) -> BlobDraft:
        return BlobDraft(self._temporary, self._count)

    def _count(self, written_bytes: int) -> None:
        """An archive of a few kilobytes can hold terabytes: the disk is asked while they are written, not after."""
        self._unchecked_bytes += written_bytes
        if self._unchecked_bytes >= _UNCHECKED_BYTES:
            self._unchecked_bytes = 0
            self._check_room()

    def finish(self, draft: BlobDraft) -> str:
        draft.close()
        if self._is_there(draft.sha256):
            draft.path.unlink()
        else:
            self._keep(draft.sha256, draft.path, draft.size)
        return draft.sha256

    def _keep(self, digest: str, path: Path, size: int) -> None:
        self._drafts[digest] = path
        self.new_bytes += size
        self.charged_bytes += charge(size)

    def drop(self, draft: BlobDraft) -> None:
        draft.close()
        draft.path.unlink(missing_ok=True)

    def _is_there(self, digest: str) -> bool:
        """What the store has is read before a new copy is given up for it: it may be damaged."""
        if digest in self._drafts:
            return True
        if not self._store.is_whole(digest):
            return False
        self._relies_on_others = True
        return True

    def commit(self) -> None:
        """Many files are renamed before they are synced, all at once: until then no record names any of them.

        A crash before that may leave a damaged content, which is read before it is relied on, and then replaced. A
        content that another process has just put there may not be synced yet.
        """
        syncs_all = len(self._drafts) > MOST_SYNCED_ALONE or self._relies_on_others
        if not syncs_all:
            for path in self._drafts.values():
                sync_file(path)
        folders = self._rename_drafts()
        if syncs_all:
            sync_file_system(self._store.root)
        else:
            for folder in folders:
                sync_folder(folder)

    def _rename_drafts(self) -> list[Path]:
        """The folders in which there are new names."""
        folders = sorted({self._store.path(digest).parent for digest in self._drafts})
        new = [folder for folder in folders if not folder.exists()]
        for folder in new:
            folder.mkdir(mode=0o700, exist_ok=True)
        for digest, path in self._drafts.items():
            path.rename(self._store.path(digest))
        self._drafts.clear()
        return [*folders, *([self._store.root] if new else [])]

    def discard(self) -> None:
        for path in self._drafts.values():
            path.unlink(missing_ok=True)
        self._drafts.clear()


def _write_new(path: Path, data: bytes) -> None:
    file = os.open(path, _NEW_FILE, 0o600)
    try:
        _write_all(file, data)
    finally:
        os.close(file)


def _write_all(file: int, data: bytes | memoryview) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]
