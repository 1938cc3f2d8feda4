"""Archives on their way in and out: through a pipe, between a request and the thread that reads or writes a tar.

So none is in the memory, and none on the disk but as contents of the store, which are counted. One archive of a tenant
at a time: each holds a thread as long as its client takes.
"""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Protocol, TypeVar

import anyio
import anyio.to_thread
from starlette.requests import ClientDisconnect, Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from fumehood.errors import UsageError
from fumehood.remote.feed import read_some, write_all
from fumehood.sandbox.archive import ArchiveWriter
from fumehood.server.api.problems import RequestConflictError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

T = TypeVar("T")
_MOST_TRANSFERS = 32


class ArchiveExport(Protocol):
    def __call__(self, *, write: Callable[[ArchiveWriter], None]) -> list[str]: ...


class ArchiveTransfers:
    """Those under way in this process."""

    def __init__(self) -> None:
        self._tenants: set[str] = set()
        self._threads = anyio.CapacityLimiter(_MOST_TRANSFERS)

    async def receive(self, tenant: str, request: Request, create: Callable[[io.BufferedReader], T]) -> T:
        """What `create` makes of the body of a request, in a thread. A body that breaks off is an error for it."""
        with self._slot(tenant):
            source, writing = _PipeSource.open()
            work = asyncio.ensure_future(anyio.to_thread.run_sync(_consume, source, create, limiter=self._threads))
            try:
                await _pass_on(request, writing, source)
            finally:
                os.close(writing)
                await asyncio.wait([work])
            return work.result()

    async def begin_sending(self, tenant: str, export: ArchiveExport) -> OutgoingArchive:
        """Returns when the archive begins; until then `export` can refuse."""
        slot = ExitStack()
        slot.enter_context(self._slot(tenant))
        outgoing = OutgoingArchive(slot.close)
        await outgoing.begin(export, self._threads)
        return outgoing

    @contextmanager
    def _slot(self, tenant: str) -> Iterator[None]:
        if tenant in self._tenants or len(self._tenants) >= _MOST_TRANSFERS:
            raise RequestConflictError("another archive is on its way; try again when it is done")
        self._tenants.add(tenant)
        try:
            yield
        finally:
            self._tenants.discard(tenant)


class _PipeSource(io.RawIOBase):
    """The reading end of a pipe, whose end is the archive's only if the writer says so."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.is_complete = False

    @classmethod
    def open(cls) -> tuple[_PipeSource, int]:
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        return cls(reading), writing

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        count = os.readv(self._descriptor, [buffer])
        if count == 0 and not self.is_complete:
            raise UsageError("the archive broke off before its end; nothing of it is kept")
        return count

    def close(self) -> None:
        if not self.closed:
            os.close(self._descriptor)
        super().close()


def _consume(source: _PipeSource, create: Callable[[io.BufferedReader], T]) -> T:
    with source:
        return create(io.BufferedReader(source))


async def _pass_on(request: Request, writing: int, source: _PipeSource) -> None:
    """Until the body has ended, or its reader has seen enough of it."""
    with suppress(BrokenPipeError, ClientDisconnect):
        async for chunk in request.stream():
            await write_all(writing, chunk)
        source.is_complete = True


class OutgoingArchive:
    """A tar that a thread writes while a client reads it. `close` ends both, wherever they are."""

    def __init__(self, done: Callable[[], None]) -> None:
        self._done: Callable[[], None] | None = done
        self._reading, self._writing = os.pipe()
        self._work: asyncio.Future[list[str]] | None = None
        self.skipped: list[str] = []
        """Links that are left out."""

    async def begin(self, export: ArchiveExport, threads: anyio.CapacityLimiter) -> None:
        loop, begun = asyncio.get_running_loop(), asyncio.Event()

        def write(archive: ArchiveWriter) -> None:
            self.skipped = archive.skipped
            loop.call_soon_threadsafe(begun.set)
            with open(self._writing, "wb", closefd=False) as file:
                archive.write(file)

        def work() -> list[str]:
            try:
                return export(write=write)
            finally:
                os.close(self._writing)

        self._work = asyncio.ensure_future(anyio.to_thread.run_sync(work, limiter=threads))
        beginning = asyncio.ensure_future(begun.wait())
        try:
            await asyncio.wait([self._work, beginning], return_when=asyncio.FIRST_COMPLETED)
            if self._work.done():
                self._work.result()
        except BaseException:
            await self.close()
            raise
        finally:
            beginning.cancel()

    async def chunks(self) -> AsyncIterator[bytes]:
        assert self._work is not None
        while data := await read_some(self._reading):
            yield data
        await self._work  # an archive that is not whole must not look as if it were

    async def close(self) -> None:
        done, self._done = self._done, None
        if done is None:
            return
        os.close(self._reading)  # the thread gets an error where it writes
        try:
            if self._work is not None:
                with anyio.CancelScope(shield=True):
                    await asyncio.wait([self._work])
                self._work.exception()
        finally:
            done()


class ArchiveResponse(StreamingResponse):
    def __init__(self, archive: OutgoingArchive, *, media_type: str, headers: dict[str, str]) -> None:
        super().__init__(archive.chunks(), media_type=media_type, headers=headers)
        self._archive = archive

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._archive.close()
