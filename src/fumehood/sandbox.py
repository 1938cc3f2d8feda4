"""The facade: `Sandbox`, where the caller's wishes meet a policy and a backend.

A sandbox is one place with one policy and one workspace. Every run in it is a fresh process in fresh namespaces; what
runs of one sandbox share is the workspace, and nothing else.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, aclosing
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

import anyio.from_thread
import anyio.to_thread

from fumehood.backends.interface import BackendSandbox, PackageFolder, RunRequest
from fumehood.backends.selection import select_backend
from fumehood.compilation import plan_build, run_compiled, stream_compiled
from fumehood.errors import UsageError
from fumehood.events import Event, Finished, Stderr, Stdout
from fumehood.policy import Environment, Policy
from fumehood.requests import RunOptions, make_request
from fumehood.results import RunResult

if TYPE_CHECKING:
    from fumehood.environments import Lease


class Sandbox:
    """`async with Sandbox(policy) as box`: opened, used, closed. Without a policy everything is denied.

    Opening the first sandbox with new packages installs them; `progress` is told about it, from another thread.
    """

    def __init__(self, policy: Policy | None = None, *, progress: Callable[[str], None] | None = None) -> None:
        self.policy = policy or Policy()
        self._progress = progress
        self._opened: BackendSandbox | None = None
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        if self._opened is not None:
            raise UsageError("this sandbox is open already; make another Sandbox for a second place")
        backend = select_backend(self.policy)
        backend.check(self.policy)
        async with AsyncExitStack() as stack:
            packages = await self._install_packages(stack)
            self._opened = await stack.enter_async_context(backend.open(self.policy, packages))
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
        await self._stack.aclose()

    @property
    def enforcement(self) -> Mapping[str, str]:
        """Control -> the mechanism that enforces it here."""
        return self._backend_sandbox().report.mechanisms()

    async def run(self, code: str | bytes | None = None, **options: Unpack[RunOptions]) -> RunResult:
        """Run code, or a command with `argv`, to its end. A program that fails is a result, not an exception."""
        request = make_request(self.policy, code, options)
        build = plan_build(request, self.policy)
        return await (run_compiled(build, self._run) if build else self._run(request))

    async def _run(self, request: RunRequest) -> RunResult:
        streams: dict[int, list[bytes]] = {1: [], 2: []}
        async with self._backend_sandbox().start(request) as execution:
            async for output in execution.output(live=False):
                streams[output.stream].append(output.data)
            outcome = execution.outcome()
        return RunResult.of(outcome, b"".join(streams[1]), b"".join(streams[2]), _run_id(), self.policy.digest)

    async def stream(self, code: str | bytes | None = None, **options: Unpack[RunOptions]) -> AsyncIterator[Event]:
        """As `run`, but output arrives as it appears. The last event is `Finished`; leaving early ends the run."""
        request = make_request(self.policy, code, options)
        build = plan_build(request, self.policy)
        async with aclosing(
            stream_compiled(build, self._stream, self._run) if build else self._stream(request)
        ) as events:
            async for event in events:
                yield event

    async def _stream(self, request: RunRequest) -> AsyncGenerator[Event, None]:
        async with self._backend_sandbox().start(request) as execution:
            async for output in execution.output(live=True):
                yield Stdout(output.data) if output.stream == 1 else Stderr(output.data)
            outcome = execution.outcome()
        yield Finished(RunResult.of(outcome, b"", b"", _run_id(), self.policy.digest))

    def _backend_sandbox(self) -> BackendSandbox:
        if self._opened is None:
            raise UsageError("the sandbox is not open; use it inside `async with Sandbox(policy) as box:`")
        return self._opened


def _use_environment(section: Environment, progress: Callable[[str], None] | None) -> Lease:
    from fumehood.environments import EnvironmentStore, Wishes

    wishes = Wishes.of(section)
    return EnvironmentStore.open_default().use(wishes, progress, anyio.from_thread.check_cancelled)


def _run_id() -> str:
    return f"run_{secrets.token_hex(8)}"
