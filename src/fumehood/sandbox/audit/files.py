"""Records of files that go into a sandbox or come out of it."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Self

import anyio

from fumehood.audit.events import AuditEvent, FileIn, FileOut, FileOutBegun, FileOutBroken, FileRemoved
from fumehood.audit.records import Entry
from fumehood.audit.trail import Trail
from fumehood.errors import AuditError
from fumehood.sandbox.audit.run import printable

_BATCH = 500


class FileAudit:
    """`async with`: the records of one transfer, written in batches; what is pending when the block ends is written.

    A file that goes in is recorded when it is there, one that comes out before the caller has it.
    """

    def __init__(self, trail: Trail) -> None:
        self._trail = trail
        self._pending: list[Entry] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is None:
            await self.write()
            return
        # The files that were to come out have not.
        self._pending = [each for each in self._pending if each.kind == FileIn.kind]
        with anyio.CancelScope(shield=True), suppress(AuditError):
            await self.write()

    async def stored(self, path: str, size: int, sha256: str) -> None:
        """A file is complete in the sandbox."""
        self._add(FileIn(printable(path), size, sha256))
        if len(self._pending) >= _BATCH:
            await self.write()

    def fetched(self, path: str, size: int, sha256: str, target: str | None = None) -> None:
        """A file was read, and the caller does not have it yet; `target` is its path on the host."""
        absolute = None if target is None else printable(os.path.abspath(target))
        self._add(FileOut(printable(path), size, sha256, absolute))

    async def begun(self, path: str, size: int) -> None:
        """The first bytes of a file are about to leave; `fetched` or `broken` says how it went on."""
        self._add(FileOutBegun(printable(path), size))
        await self.write()

    async def broken(self, path: str, size: int) -> None:
        self._add(FileOutBroken(printable(path), size))
        await self.write()

    def removed(self, path: str, target: str) -> None:
        """A file that programs deleted is about to be deleted at `target` on the host, too."""
        self._add(FileRemoved(printable(path), printable(os.path.abspath(target))))

    def _add(self, event: AuditEvent) -> None:
        if self._trail.is_on:
            self._pending.append(self._trail.stamp(event))

    async def write(self) -> None:
        for first in range(0, len(self._pending), _BATCH):
            await self._trail.write(*self._pending[first : first + _BATCH])
        self._pending.clear()
