"""What happens in a runtime, told to the audit log before anybody else gets to know.

Those who write at the same time share a commit, which is most of what a record costs. When the log cannot be written,
each of them is told, and what they wanted to record does not happen.
"""

from __future__ import annotations

from collections.abc import Mapping

import anyio

from fumehood.audit import AuditEvent, Trail
from fumehood.audit.events import Content, as_content
from fumehood.audit.records import Entry
from fumehood.errors import AuditError
from fumehood.policy.audit import Kept


class _Batch:
    def __init__(self) -> None:
        self.events: list[Entry] = []
        self.is_written = anyio.Event()
        self.error: str | None = None


class Chronicle:
    def __init__(self, trail: Trail, keep: Kept) -> None:
        self.trail = trail
        self._keep: Kept = keep
        self.is_on = trail.is_on
        self._batch: _Batch | None = None
        self._wanted: anyio.Event | None = None
        self._is_running = False

    def content(self, data: bytes) -> Content:
        return as_content(data, self._keep)

    def stamp(self, event: AuditEvent, ids: Mapping[str, str]) -> Entry:
        return self.trail.within(**ids).stamp(event)

    async def tell(self, event: AuditEvent, **ids: str) -> None:
        if self.is_on:
            await self.write(self.stamp(event, ids))

    async def write(self, *events: Entry) -> None:
        """AuditError when they are not in the log."""
        if not self._is_running:
            await self.trail.write(*events)
            return
        if self._batch is None:
            self._batch = _Batch()
        batch = self._batch
        batch.events.extend(events)
        if self._wanted is not None:
            self._wanted.set()
        await batch.is_written.wait()
        if batch.error is not None:
            raise AuditError(batch.error)

    async def run(self) -> None:
        """A task of its own, so that nobody's cancellation takes along what others want to write."""
        self._is_running = True
        try:
            while True:
                if self._batch is None:
                    self._wanted = anyio.Event()
                    await self._wanted.wait()
                await self._write_batch()
        finally:
            self._is_running = False
            if self._batch is not None:
                self._batch.error = "the runtime is at its end"
                self._batch.is_written.set()

    async def _write_batch(self) -> None:
        batch, self._batch = self._batch, None
        if batch is None:
            return
        batch.error = "it was not written"
        try:
            with anyio.CancelScope(shield=True):
                await self.trail.write(*batch.events)
            batch.error = None
        except AuditError as error:
            batch.error = str(error)
        finally:
            batch.is_written.set()
