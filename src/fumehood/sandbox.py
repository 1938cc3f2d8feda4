"""The facade: `Sandbox`, where the caller's wishes meet a policy and a backend.

A sandbox is one place with one policy and one workspace. Every run in it is a fresh process in fresh namespaces; what
runs of one sandbox share is the workspace, and nothing else.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

import anyio
import anyio.from_thread
import anyio.to_thread

from fumehood.audit.trail import OFF
from fumehood.backends.interface import BackendSandbox, PackageFolder, RunRequest
from fumehood.backends.selection import select_backend
from fumehood.background import BackgroundRun
from fumehood.compilation import plan_build, run_compiled, stream_compiled
from fumehood.errors import UsageError
from fumehood.events import Event, Finished
from fumehood.files import Files
from fumehood.journal import Journal
from fumehood.opening import AuditChoice, open_trail, tell_closed, tell_opened, telling_refusals
from fumehood.policy import Environment, Policy
from fumehood.recording import as_event, record
from fumehood.requests import RunOptions, make_live_request, make_request
from fumehood.results import Cause, Record, RunResult, Status
from fumehood.session import Session

if TYPE_CHECKING:
    from fumehood.environments import Lease


class Sandbox(Files):
    """`async with Sandbox(policy) as box`: opened, used, closed. Without a policy everything is denied.

    With `session`, Python code runs in one session of the sandbox's; commands and other languages do not.
    Opening the first sandbox with new packages installs them; `progress` is told about it, from another thread.
    What happens is recorded in `audit`: a log, a trail in one that says who acts for whom, the folder of one, or False
    for none at all. By default it is the log that FUMEHOOD_AUDIT names, else the user's own.
    """

    def __init__(
        self,
        policy: Policy | None = None,
        *,
        session: bool = False,
        progress: Callable[[str], None] | None = None,
        audit: AuditChoice = None,
    ) -> None:
        self.policy = policy or Policy()
        super().__init__(self.policy, lambda: self._backend_sandbox().files())
        self._audit = audit
        self._trail = OFF
        self._progress = progress
        self._session = self.session() if session else None
        self._opened: BackendSandbox | None = None
        self._stack = AsyncExitStack()
        self._background: list[BackgroundRun] = []

    async def __aenter__(self) -> Self:
        if self._opened is not None:
            raise UsageError("this sandbox is open already; make another Sandbox for a second place")
        trail = open_trail(self.policy, self._audit)
        async with telling_refusals(trail, self.policy), AsyncExitStack() as stack:
            backend = select_backend(self.policy)
            backend.check(self.policy)
            packages = await self._install_packages(stack)
            opened = await stack.enter_async_context(backend.open(self.policy, packages))
            await tell_opened(trail, self.policy, backend.name, opened.report, packages)
            self._opened, self._trail, self._journal = opened, trail, Journal(trail, self.policy.audit)
            self._stack = stack.pop_all()
        return self

    async def _install_packages(self, stack: AsyncExitStack) -> PackageFolder | None:
        """In a worker thread, which notices when we are cancelled and ends the installation before we go on."""
        section = self.policy.environment
        if not section.packages and section.requirements is None:
            return None
        lease = await anyio.to_thread.run_sync(_use_environment, section, self._progress)
        stack.callback(lease.close)
        return PackageFolder(str(lease.environment.folder), lease.environment.digest)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._opened = None
        with anyio.CancelScope(shield=True):
            for part in (*self._background, *([self._session] if self._session else [])):
                await part.close()
        await self._stack.aclose()
        await tell_closed(self._trail, is_failing=error is not None)
        self._trail, self._journal = OFF, Journal()

    @property
    def enforcement(self) -> Mapping[str, str]:
        """Control -> the mechanism that enforces it here."""
        return self._backend_sandbox().report.mechanisms()

    async def run(self, code: str | bytes | None = None, **options: Unpack[RunOptions]) -> RunResult:
        """Run code, or a command with `argv`, to its end. A program that fails is a result, not an exception."""
        if self._session and code is not None and _is_python(options):
            return await self._session.run(code, **options)
        request = await self._request(code, options)
        build = plan_build(request, self.policy)
        return await self._with_artifacts(await (run_compiled(build, self._run) if build else self._run(request)))

    async def _request(self, code: str | bytes | None, options: RunOptions) -> RunRequest:
        async with self._journal.telling_denials("run"):
            return make_request(self.policy, code, options)

    async def _run(self, request: RunRequest) -> RunResult:
        opened = self._backend_sandbox()
        async with self._journal.run(request) as entry:
            async with opened.start(request) as execution:
                entry.started()
                taken = await record(execution)
            entry.saw(1, taken.stdout)
            entry.saw(2, taken.stderr)
            return await entry.concluded(self._result(taken, entry.run_id))

    async def stream(
        self, code: str | bytes | None = None, **options: Unpack[RunOptions]
    ) -> AsyncGenerator[Event, None]:
        """As `run`, but output arrives as it appears. The last event is `Finished`; leaving early ends the run."""
        async with aclosing(await self._events(code, options)) as events:
            async for event in events:
                yield event

    async def _events(self, code: str | bytes | None, options: RunOptions) -> AsyncGenerator[Event, None]:
        if self._session and code is not None and _is_python(options):
            return self._session.stream(code, **options)
        request = await self._request(code, options)
        build = plan_build(request, self.policy)
        return self._collecting(stream_compiled(build, self._stream, self._run) if build else self._stream(request))

    async def _collecting(self, stream: AsyncGenerator[Event, None]) -> AsyncGenerator[Event, None]:
        async with aclosing(stream) as events:
            async for event in events:
                yield Finished(await self._with_artifacts(event.result)) if isinstance(event, Finished) else event

    async def _stream(self, request: RunRequest) -> AsyncGenerator[Event, None]:
        opened = self._backend_sandbox()
        async with self._journal.run(request) as entry:
            async with opened.start(request) as execution:
                entry.started()
                async for output in execution.output(live=True):
                    event = as_event(output)
                    entry.saw_event(event)
                    yield event
                outcome = execution.outcome()
            result = await entry.concluded(self._result(Record(outcome), entry.run_id))
        yield Finished(result)

    def session(self) -> Session:
        """`async with box.session() as session`: Python state that lives on between runs, in this workspace."""
        return Session(self.policy, lambda: self._backend_sandbox().open_session(), lambda: self._journal, self._report)

    async def start(
        self, code: str | bytes | None = None, *, terminal: tuple[int, int] | None = None, **options: Unpack[RunOptions]
    ) -> BackgroundRun:
        """As `run`, without waiting for the end; its input stays open for `write`.

        With `terminal`, its size in columns and rows, the program's standard streams are a terminal.
        """
        async with self._journal.telling_denials("run"):
            request = make_live_request(self.policy, code, terminal, options)
        if plan_build(request, self.policy):
            raise UsageError(f"{request.language} has to be compiled, which only `run` and `stream` do")
        opened = self._backend_sandbox()
        async with self._journal.run(request) as entry, AsyncExitStack() as stack:
            execution = await stack.enter_async_context(opened.start(request))
            await entry.started_in_background()
            run = BackgroundRun(execution, stack.pop_all(), entry, self._report)
        self._background = [*(other for other in self._background if not other.is_concluded), run]
        return run

    async def _report(self, taken: Record, run_id: str) -> RunResult:
        return await self._with_artifacts(self._result(taken, run_id))

    def _result(self, taken: Record, run_id: str) -> RunResult:
        return RunResult.of(taken, run_id, self.policy.digest)

    async def _with_artifacts(self, result: RunResult) -> RunResult:
        """With what the run left that may leave. More of that than allowed is a failure, whatever the program says."""
        if not self.policy.filesystem.outputs:
            return result
        collection = await self._new_artifacts()
        await self._journal.artifacts(result.run_id, collection.artifacts, collection.problem)
        if collection.problem is None or not result.ok:
            return replace(result, artifacts=collection.artifacts)
        return replace(result, status=Status.RESOURCE_EXCEEDED, cause=Cause.OUTPUT, detail=collection.problem)

    def _backend_sandbox(self) -> BackendSandbox:
        if self._opened is None:
            raise UsageError("the sandbox is not open; use it inside `async with Sandbox(policy) as box:`")
        return self._opened


def _use_environment(section: Environment, progress: Callable[[str], None] | None) -> Lease:
    from fumehood.environments import EnvironmentStore, Wishes

    wishes = Wishes.of(section)
    return EnvironmentStore.open_default().use(wishes, progress, anyio.from_thread.check_cancelled)


def _is_python(options: RunOptions) -> bool:
    return options.get("language", "python") == "python"
