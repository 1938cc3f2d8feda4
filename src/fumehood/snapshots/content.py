"""A content of a snapshot, read piece by piece, and compared with its digest before its last piece is returned."""

from __future__ import annotations

import hashlib
from typing import Self

from fumehood.snapshots.manifest import SnapshotEntry
from fumehood.snapshots.store import SnapshotStore, damaged


class CheckedContent:
    """Of an entry that is not empty. Use it in `with`."""

    def __init__(self, store: SnapshotStore, entry: SnapshotEntry, identifier: str) -> None:
        self._entry, self._identifier = entry, identifier
        self._digest = hashlib.sha256()
        self.left = entry.size
        """How many bytes are to come."""
        try:
            self._file = store.blobs.path(entry.sha256).open("rb")
        except FileNotFoundError:
            raise damaged(entry, identifier, "is gone") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def read(self, size: int) -> bytes:
        data = self._file.read(min(self.left, size))
        self._digest.update(data)
        self.left -= len(data)
        if not data or (self.left == 0 and self.sha256() != self._entry.sha256):
            raise damaged(self._entry, self._identifier, "is not what was written")
        return data

    def sha256(self) -> str:
        return self._digest.hexdigest()
