"""The runs of one sandbox: checked, recorded, started, and followed to their results.

`run`, `stream` and `start` differ in what the caller gets while the program runs. All begin alike: a request is made
of the caller's options, the policy decides about the command, the request is recorded, and then the run starts.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import replace
from functools import partial

from fumehood.backends.interface import LiveExecution, RunRequest
from fumehood.errors import DeniedError, UsageError
from fumehood.events import Event, Finished
from fumehood.results import RunOutput, RunResult
from fumehood.sandbox.audit import RunAudit
from fumehood.sandbox.background import AsyncBackgroundRun
from fumehood.sandbox.command_check import denials, denied_result
from fumehood.sandbox.compile import plan_build, run_compiled, stream_compiled
from fumehood.sandbox.core import SandboxCore, identifier
from fumehood.sandbox.egress import RunNetwork
from fumehood.sandbox.output import LastWords, as_event, record
from fumehood.sandbox.report import RunReport
from fumehood.sandbox.request import RunOptions, make_live_request, make_request, refuse_secrets
from fumehood.sandbox.session import AsyncSession, SessionProcess


class SandboxRuns:
    """Starts runs and sessions; those in the background are closed with it."""

    def __init__(self, core: SandboxCore, report: RunReport, *, is_for_one_run: bool) -> None:
        self._core, self._report, self._is_for_one_run = core, report, is_for_one_run
        self._executions: set[LiveExecution] = set()
        self.background: list[AsyncBackgroundRun] = []

    @property
    def are_under_way(self) -> bool:
        return bool(self._executions)

    async def run(self, code: str | bytes | None, options: RunOptions) -> RunResult:
        request = await self._request(code, options)
        if refused := await self._refusal(request):
            return refused
        build = plan_build(request, self._core.policy)
        is_last = self._closes_with_run()
        run = run_compiled(build, self._run) if build else self._run(request, is_last=is_last)
        return await self._report.with_artifacts(await run)

    def _closes_with_run(self) -> bool:
        """Whether nothing but closing the sandbox follows its run, and that waits for nothing."""
        waits = self._core.has_network or not self._core.backend.closes_at_once
        return self._is_for_one_run and not waits and not self._core.policy.filesystem.outputs

    async def events(self, code: str | bytes | None, options: RunOptions) -> AsyncGenerator[Event, None]:
        """The events of a run; it starts when the first of them is asked for."""
        request = await self._request(code, options)
        if refused := await self._refusal(request):
            return _finished(refused)
        build = plan_build(request, self._core.policy)
        return self._collecting(stream_compiled(build, self._stream, self._run) if build else self._stream(request))

    async def start(
        self, code: str | bytes | None, terminal: tuple[int, int] | None, options: RunOptions
    ) -> AsyncBackgroundRun:
        core = self._core
        async with core.audit.denials("run"):
            request = make_live_request(core.policy, code, terminal, options)
            refuse_secrets(core.policy, request.environment, core.tenant.secrets)
            if refused := await denials(core.policy, request):
                raise DeniedError("\n".join(map(str, refused)))
        if plan_build(request, core.policy):
            raise UsageError(f"{request.language} has to be compiled, which only `run` and `stream` do")
        async with self._run_audit(request) as audit, AsyncExitStack() as stack:
            execution, network = await stack.enter_async_context(self._started(request, audit))
            await audit.write_started()
            report = partial(self._report.full_result, network=network)
            run = AsyncBackgroundRun(execution, stack.pop_all(), audit, report)
        self.background = [*(other for other in self.background if not other.is_concluded), run]
        return run

    def session(self) -> AsyncSession:
        core = self._core
        return AsyncSession(core.policy, core.audit, self._open_session_process, self._report.full_result)

    def send_signal(self, number: int) -> None:
        """To the first process of each run under way."""
        for execution in self._executions:
            execution.send_signal(number)

    async def close(self) -> None:
        for run in self.background:
            await run.close()

    async def _request(self, code: str | bytes | None, options: RunOptions) -> RunRequest:
        core = self._core
        async with core.audit.denials("run"):
            request = make_request(core.policy, code, options)
            refuse_secrets(core.policy, request.environment, core.tenant.secrets)
        return request

    async def _refusal(self, request: RunRequest) -> RunResult | None:
        """The result of a command that the policy does not allow, and that does not start."""
        refused = await denials(self._core.policy, request)
        if not refused:
            return None
        result = denied_result(refused, self._core.policy)
        await self._core.audit.denied(result)
        return result

    async def _run(self, request: RunRequest, *, is_last: bool = False) -> RunResult:
        async with self._run_audit(request) as audit:
            async with self._started(request, audit) as (execution, network):
                if not await execution.wait_shortly():
                    await audit.write_started()
                taken = await record(execution)
            audit.stdout(taken.stdout)
            audit.stderr(taken.stderr)
            result = self._report.result(taken, audit.run_id, network)
            if not is_last:
                return await audit.finished(result)
            await self._core.stack.aclose()
            return await self._core.audit.closed_with(audit, result)

    async def _stream(self, request: RunRequest) -> AsyncGenerator[Event, None]:
        async with self._run_audit(request) as audit:
            async with self._started(request, audit) as (execution, network):
                await audit.write_started()
                last_words = LastWords()
                async for output in execution.output():
                    event = as_event(output)
                    audit.output(event)
                    last_words.add(event)
                    yield event
                taken = RunOutput(execution.outcome())
            result = await audit.finished(self._report.result(taken, audit.run_id, network, last_words.data))
        yield Finished(result)

    async def _collecting(self, stream: AsyncGenerator[Event, None]) -> AsyncGenerator[Event, None]:
        async with aclosing(stream) as events:
            async for event in events:
                if isinstance(event, Finished):
                    event = Finished(await self._report.with_artifacts(event.result))
                yield event

    def _run_audit(self, request: RunRequest) -> RunAudit:
        """The audit of a run that starts as soon as its request is recorded."""
        if self._core.audit.trail.is_on:
            self._core.backend.expect()
        return self._core.audit.run(request)

    @asynccontextmanager
    async def _started(self, request: RunRequest, audit: RunAudit) -> AsyncIterator[tuple[LiveExecution, RunNetwork]]:
        """The run under way, with its egress; leaving the block ends both."""
        backend = self._core.backend
        async with self._core.run_network(audit.run_id, request) as network:
            audit.follow(network.follow())
            async with backend.start(_equipped(request, network)) as execution:
                audit.started()
                self._executions.add(execution)
                try:
                    yield execution, network
                finally:
                    self._executions.discard(execution)

    @asynccontextmanager
    async def _open_session_process(self) -> AsyncIterator[SessionProcess]:
        backend = self._core.backend
        async with (
            self._core.run_network(identifier("session")) as network,
            backend.open_session(network.endpoint) as opened,
        ):
            self._core.open_sessions += 1
            try:
                yield SessionProcess(opened, network)
            finally:
                self._core.open_sessions -= 1


def _equipped(request: RunRequest, network: RunNetwork) -> RunRequest:
    return replace(request, endpoint=network.endpoint) if network.endpoint else request


async def _finished(result: RunResult) -> AsyncGenerator[Event, None]:
    yield Finished(result)
