"""A session: Python state that lives on between runs, and rich results."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from types import TracebackType
from typing import NamedTuple, Self, Unpack

import anyio

from fumehood.backends.interface import BackendSession, Execution
from fumehood.errors import UsageError
from fumehood.events import Event, Finished
from fumehood.policy import Policy
from fumehood.results import RunOutput, RunResult, Status
from fumehood.sandbox.audit import RunAudit, SandboxAudit, SessionAudit
from fumehood.sandbox.egress import RunNetwork
from fumehood.sandbox.output import LastWords, as_event, record
from fumehood.sandbox.request import RunOptions, make_session_request, options_of_runs

_STATE_IS_LOST = "the session's state is lost, and the next run begins with a new one"
_LEFT_EXIT_CODE = 1


class SessionProcess(NamedTuple):
    """The interpreter of a session, and its egress."""

    backend: BackendSession
    egress: RunNetwork


class _SessionRun(NamedTuple):
    execution: Execution
    egress: RunNetwork
    audit: RunAudit
    is_restarted: bool


class AsyncSession:
    """A session, made by `AsyncSandbox.session`. Runs wait for each other; one that fails leaves the state as it is.

    When its process ends, by a crash or for want of memory, the result says why, and the next run gets a new one:
    `restarted` is true in its result.
    """

    def __init__(
        self,
        policy: Policy,
        audit: SandboxAudit,
        open_process: Callable[[], AbstractAsyncContextManager[SessionProcess]],
        report: Callable[[RunOutput, str, RunNetwork, bytes], Awaitable[RunResult]],
    ) -> None:
        self._policy = policy
        self._sandbox_audit = audit
        self._open_process, self._report = open_process, report
        self._turn = anyio.Semaphore(1)  # not a lock: a stream may be read from several tasks in turn
        self._lifetime = AsyncExitStack()
        self._process: SessionProcess | None = None
        self._audit: SessionAudit | None = None
        self._is_closed = self._was_lost = False

    async def __aenter__(self) -> Self:
        async with self._turn:
            await self._living_process()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    @options_of_runs()
    async def run(self, code: str | bytes, **options: Unpack[RunOptions]) -> RunResult:
        """The value of the last expression, figures and the like are in the result's `displays`."""
        async with self._execute(code, options) as run:
            taken = await record(run.execution)
            run.audit.stdout(taken.stdout)
            run.audit.stderr(taken.stderr)
            run.audit.display(*taken.displays)
        return await self._conclude(taken, run)

    @options_of_runs()
    async def stream(self, code: str | bytes, **options: Unpack[RunOptions]) -> AsyncGenerator[Event, None]:
        """Runs code and yields output and displays as they appear. Leaving early interrupts the run."""
        last_words = LastWords()
        async with self._execute(code, options) as run:
            async for output in run.execution.output():
                event = as_event(output)
                run.audit.output(event)
                last_words.add(event)
                yield event
            outcome = run.execution.outcome()
        yield Finished(await self._conclude(RunOutput(outcome), run, last_words.data))

    async def interrupt(self) -> None:
        """The run under way ends as with Ctrl-C, and the state is kept. Nothing happens when there is none."""
        if self._process:
            self._process.backend.interrupt()

    async def restart(self) -> None:
        """Begin anew, with no state; a run under way ends."""
        await self._end()
        self._was_lost = False

    async def close(self) -> None:
        self._is_closed = True
        await self._end()

    @asynccontextmanager
    async def _execute(self, code: str | bytes, options: RunOptions) -> AsyncIterator[_SessionRun]:
        async with self._sandbox_audit.denials("run"):
            request = make_session_request(self._policy, code, options)
        async with self._turn:
            (backend, egress), session_audit = await self._living_process()
            is_restarted, self._was_lost = self._was_lost, False
            async with session_audit.run(request) as audit, backend.execute(request) as execution:
                audit.started()
                yield _SessionRun(execution, egress, audit, is_restarted)

    async def _living_process(self) -> tuple[SessionProcess, SessionAudit]:
        """The process that there is, or a new one."""
        if self._is_closed:
            raise UsageError("the session is closed; open another one with `async with box.session() as session:`")
        if self._process and self._audit and self._process.backend.is_alive:
            return self._process, self._audit
        if self._process is not None:
            await self._end()
            self._was_lost = True
        async with AsyncExitStack() as stack:
            process = await stack.enter_async_context(self._open_process())
            audit = self._sandbox_audit.session(process.egress.follow)
            await audit.opened()
            self._process, self._audit, self._lifetime = process, audit, stack.pop_all()
        return process, audit

    async def _conclude(self, taken: RunOutput, run: _SessionRun, last_words: bytes = b"") -> RunResult:
        try:
            result = await self._report(taken, run.audit.run_id, run.egress, last_words)
            result = replace(result, restarted=run.is_restarted)
            if self._process is not None and not self._process.backend.is_alive:
                result = _lost(result)
            return await run.audit.finished(result)
        except BaseException as error:
            await run.audit.failed(error)
            raise

    async def _end(self) -> None:
        audit, self._process, self._audit = self._audit, None, None
        await self._lifetime.aclose()
        if audit is not None:
            await audit.closed()


def _lost(result: RunResult) -> RunResult:
    """A run after which there is no session. It did not end as a run does, whatever code its process left with."""
    detail = f"{result.detail}; {_STATE_IS_LOST}" if result.detail else _STATE_IS_LOST
    if result.ok:
        return replace(result, status=Status.ERROR, exit_code=_LEFT_EXIT_CODE, detail=f"the process ended; {detail}")
    return replace(result, detail=detail)
