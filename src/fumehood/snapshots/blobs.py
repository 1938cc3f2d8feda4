"""Contents by digest: each once, however many snapshots have it, and complete or not there at all."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from fumehood.snapshots.durability import sync_files, sync_folders
from fumehood.snapshots.limits import charge

CHUNK_BYTES = 1024 * 1024
# So much is written before the store is asked again whether there is room for it.
_UNCHECKED_BYTES = 16 * 1024 * 1024
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def _has_room() -> None:
    """For a store without a limit."""


class BlobStore:
    """`check_room` raises when the contents that are being written would not fit."""

    def __init__(self, root: Path, temporary: Path, check_room: Callable[[], None] = _has_room) -> None:
        self.root, self._temporary, self._check_room = root, temporary, check_room

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

    def batch(self) -> BlobBatch:
        return BlobBatch(self, self._temporary, self._check_room)


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
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._file, rest) :]
        self._written(len(data))

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def close(self) -> None:
        os.close(self._file)


class BlobBatch:
    """New contents. They are in the store when `commit` has returned, and synced; before that, none is."""

    def __init__(self, store: BlobStore, temporary: Path, check_room: Callable[[], None]) -> None:
        self._store, self._temporary, self._check_room = store, temporary, check_room
        self._unchecked_bytes = 0
        self._drafts: dict[str, BlobDraft] = {}
        self.new_bytes = self.charged_bytes = 0

    def add(self, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        if not self._is_there(digest):
            draft = self.begin()
            try:
                draft.write(data)
            except BaseException:
                self.drop(draft)
                raise
            self.finish(draft)
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
            self._drafts[draft.sha256] = draft
            self.new_bytes += draft.size
            self.charged_bytes += charge(draft.size)
        return draft.sha256

    def drop(self, draft: BlobDraft) -> None:
        draft.close()
        draft.path.unlink(missing_ok=True)

    def _is_there(self, digest: str) -> bool:
        """What the store has is read before a new copy is given up for it: it may be damaged."""
        return digest in self._drafts or self._store.is_whole(digest)

    def commit(self) -> None:
        if not self._drafts:
            return
        sync_files([draft.path for draft in self._drafts.values()], self._temporary)
        folders = {self._store.path(digest).parent for digest in self._drafts}
        new = [folder for folder in folders if not folder.exists()]
        for folder in new:
            folder.mkdir(mode=0o700, exist_ok=True)
        for digest, draft in self._drafts.items():
            draft.path.rename(self._store.path(digest))
        sync_folders([*sorted(folders), *([self._store.root] if new else [])], self._store.root)
        self._drafts.clear()

    def discard(self) -> None:
        for draft in self._drafts.values():
            draft.path.unlink(missing_ok=True)
        self._drafts.clear()
