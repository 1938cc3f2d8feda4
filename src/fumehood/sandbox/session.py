"""A session: Python state that lives on between runs, and rich results."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from types import TracebackType
from typing import Self, Unpack

import anyio

from fumehood.backends.interface import BackendSession, Execution
from fumehood.errors import UsageError
from fumehood.events import Event, Finished
from fumehood.policy import Policy
from fumehood.results import Record, RunResult
from fumehood.sandbox.audit import Journal, RunEntry, Telling
from fumehood.sandbox.output import as_event, record
from fumehood.sandbox.request import RunOptions, make_session_request, options_of_runs

_STATE_IS_LOST = "the session's state is lost, and the next run begins with a new one"


class AsyncSession:
    """Made by `AsyncSandbox.session`. Runs wait for each other; one that fails leaves the state as it is.

    When its process ends, by a crash or for want of memory, the result says why, and the next run gets a new one:
    `restarted` is true in its result.
    """

    def __init__(
        self,
        policy: Policy,
        open_session: Callable[[], AbstractAsyncContextManager[BackendSession]],
        journal: Callable[[], Journal],
        report: Callable[[Record, str], Awaitable[RunResult]],
        follow_out: Callable[[], Telling],
    ) -> None:
        self._policy = policy
        self._open_session = open_session
        self._sandbox_journal = journal
        self._report, self._follow_out = report, follow_out
        self._journal = Journal()
        self._turn = anyio.Semaphore(1)  # not a lock: a stream may be read from several tasks in turn
        self._lifetime = AsyncExitStack()
        self._opened: BackendSession | None = None
        self._is_closed = self._was_lost = False

    async def __aenter__(self) -> Self:
        async with self._turn:
            await self._wake()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    @options_of_runs()
    async def run(self, code: str | bytes, **options: Unpack[RunOptions]) -> RunResult:
        """The value of the last expression, figures and the like are in the result's `displays`."""
        async with self._execute(code, options) as (execution, restarted, entry):
            taken = await record(execution)
            entry.saw(1, taken.stdout)
            entry.saw(2, taken.stderr)
        return await self._conclude(taken, restarted, entry)

    @options_of_runs()
    async def stream(self, code: str | bytes, **options: Unpack[RunOptions]) -> AsyncGenerator[Event, None]:
        """As `run`, but output and displays arrive as they appear. Leaving early interrupts the run."""
        async with self._execute(code, options) as (execution, restarted, entry):
            async for output in execution.output():
                event = as_event(output)
                entry.saw_event(event)
                yield event
            outcome = execution.outcome()
        yield Finished(await self._conclude(Record(outcome), restarted, entry))

    async def interrupt(self) -> None:
        """The run under way ends as with Ctrl-C, and the state is kept. Nothing happens when there is none."""
        if self._opened:
            self._opened.interrupt()

    async def restart(self) -> None:
        """Begin anew, with no state; a run under way ends."""
        await self._end()
        self._was_lost = False

    async def close(self) -> None:
        self._is_closed = True
        await self._end()

    @asynccontextmanager
    async def _execute(self, code: str | bytes, options: RunOptions) -> AsyncIterator[tuple[Execution, bool, RunEntry]]:
        async with self._sandbox_journal().telling_denials("run"):
            request = make_session_request(self._policy, code, options)
        async with self._turn:
            session = await self._wake()
            restarted, self._was_lost = self._was_lost, False
            async with self._journal.run(request) as entry, session.execute(request) as execution:
                entry.started()
                yield execution, restarted, entry

    async def _wake(self) -> BackendSession:
        """The process that there is, or a new one."""
        if self._is_closed:
            raise UsageError("the session is closed; open another one with `async with box.session() as session:`")
        if self._opened is not None and self._opened.is_alive:
            return self._opened
        if self._opened is not None:
            await self._end()
            self._was_lost = True
        async with AsyncExitStack() as stack:
            opened = await stack.enter_async_context(self._open_session())
            journal = self._sandbox_journal().within_session(self._follow_out)
            await journal.session_opened()
            self._opened, self._journal, self._lifetime = opened, journal, stack.pop_all()
        return opened

    async def _conclude(self, taken: Record, restarted: bool, entry: RunEntry) -> RunResult:
        try:
            result = replace(await self._report(taken, entry.run_id), restarted=restarted)
            if self._opened is not None and not self._opened.is_alive:
                detail = f"{result.detail}; {_STATE_IS_LOST}" if result.detail else _STATE_IS_LOST
                result = replace(result, detail=detail)
            return await entry.concluded(result)
        except BaseException as error:
            await entry.broke_off(error)
            raise

    async def _end(self) -> None:
        was_open, self._opened = self._opened is not None, None
        await self._lifetime.aclose()
        if was_open:
            await self._journal.session_closed()
