"""The facade: `AsyncSandbox`, where the caller's wishes meet a policy and a backend.

A sandbox is one place with one policy and one workspace. Every run in it is a fresh process in fresh namespaces; what
runs of one sandbox share is the workspace, and nothing else.
"""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager, nullcontext
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

import anyio
import anyio.from_thread
import anyio.to_thread

from fumehood.audit.trail import OFF, Trail
from fumehood.backends.interface import (
    Backend,
    BackendSandbox,
    BackendSession,
    LiveExecution,
    PackageFolder,
    RunRequest,
)
from fumehood.backends.selection import select_backend
from fumehood.concurrency.threads import run_whole
from fumehood.errors import DeniedError, UsageError
from fumehood.events import Event, Finished, Stderr
from fumehood.keywords import known_keywords
from fumehood.policy import AnyPolicy, Environment, Policy, read_policy
from fumehood.results import Cause, Record, RunResult, Status
from fumehood.sandbox.audit import Journal, RunEntry
from fumehood.sandbox.background import AsyncBackgroundRun, checked_signal
from fumehood.sandbox.command_check import denials, denied_result
from fumehood.sandbox.compile import plan_build, run_compiled, stream_compiled
from fumehood.sandbox.egress import LAST_WORDS_BYTES, RunNetwork, SandboxNetwork, network_hint, wait_for_gateway
from fumehood.sandbox.files import Files
from fumehood.sandbox.opening import (
    AuditChoice,
    open_trail,
    refuse_ungated,
    tell_closed,
    tell_opened,
    telling_refusals,
    warn_of_dangers,
)
from fumehood.sandbox.output import as_event, record
from fumehood.sandbox.request import RunOptions, make_live_request, make_request, options_of_runs, place_in_policy
from fumehood.sandbox.session import AsyncSession

if TYPE_CHECKING:
    from fumehood.egress import SandboxEgress
    from fumehood.environments import EnvironmentLease, InstallRunner

# A disk with less room than this may have refused a write.
_ROOM_BYTES = 64 * 1024


class AsyncSandbox(Files):
    """`async with AsyncSandbox(policy) as box`: opened, used, closed. Without a policy everything is denied.

    With `session`, Python code runs in one session of the sandbox's; commands and other languages do not.
    Opening the first sandbox with new packages installs them; `progress` is told about it, from another thread.
    With `learn`, nothing gets out whatever the policy allows, and `denials` of results tell all that was tried.
    What happens is recorded in `audit`: a log, a trail in one that says who acts for whom, the folder of one, or False
    for none at all. By default it is the log that FUMEHOOD_AUDIT names, else the user's own.
    A policy with `approvals` opens only if it is `gated`: the caller sees to it that they are asked for
    (`fumehood.tools.approvals`) before anything runs here.
    With `keep_tmp`, runs share /tmp as they share the workspace, and files can be put there and read.
    """

    @known_keywords(elsewhere=place_in_policy)
    def __init__(
        self,
        policy: AnyPolicy | None = None,
        *,
        session: bool = False,
        progress: Callable[[str], None] | None = None,
        learn: bool = False,
        audit: AuditChoice = None,
        gated: bool = False,
        keep_tmp: bool = False,
    ) -> None:
        self.policy = read_policy(policy) or Policy()
        self._is_gated = gated
        self._learn = learn
        super().__init__(self.policy, lambda: self._backend_sandbox().files(), keeps_tmp=keep_tmp)
        self._audit = audit
        self._trail = OFF
        self._progress = progress
        self._session = self.session() if session else None
        self._opened: BackendSandbox | None = None
        self._egress: SandboxEgress | None = None
        self._network: SandboxNetwork | None = None
        self._stack = AsyncExitStack()
        self._background: list[AsyncBackgroundRun] = []
        self._executions: set[LiveExecution] = set()

    async def __aenter__(self) -> Self:
        if self._opened is not None:
            raise UsageError("this sandbox is open already; make another AsyncSandbox for a second place")
        trail = open_trail(self.policy, self._audit)
        async with telling_refusals(trail, self.policy), AsyncExitStack() as stack:
            backend = select_backend(self.policy)
            refuse_ungated(self.policy, backend.name, is_gated=self._is_gated)
            backend.check(self.policy)
            warn_of_dangers(self.policy)
            packages = await self._install_packages(backend, stack, trail)
            self._egress = await self._admit_to_gateway(stack)
            ports = self._egress.ports if self._egress else ()
            opened = await stack.enter_async_context(backend.open(self.policy, packages, ports))
            if self._keeps_tmp:
                opened.keep_tmp()
            if self._egress:
                self._network = SandboxNetwork(self._egress, is_shared=opened.shares_listeners)
            await tell_opened(trail, self.policy, backend.name, opened, packages)
            self._opened, self._trail, self._journal = opened, trail, Journal(trail, self.policy.audit)
            self._stack = stack.pop_all()
        return self

    async def _admit_to_gateway(self, stack: AsyncExitStack) -> SandboxEgress | None:
        """Without network rules there is no gateway, no thread and no listener."""
        if not self.policy.network.allow and not self._learn:
            return None
        egress = await run_whole(partial(_admit, self.policy, self._learn), lambda made: made.close())
        stack.push_async_callback(wait_for_gateway, egress.close)
        return egress

    async def _install_packages(self, backend: Backend, stack: AsyncExitStack, trail: Trail) -> PackageFolder | None:
        """In a worker thread, which notices when we are cancelled and ends the installation before we go on."""
        section = self.policy.environment
        if not section.has_packages:
            return None
        if await backend.has_packages(self.policy, await anyio.to_thread.run_sync(_request, section)):
            return None
        lease = await anyio.to_thread.run_sync(_use_environment, section, self._progress, trail)
        stack.callback(lease.close)
        return PackageFolder(str(lease.environment.folder), lease.environment.digest)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._opened = self._egress = self._network = None
        with anyio.CancelScope(shield=True):
            for part in (*self._background, *([self._session] if self._session else [])):
                await part.close()
        await self._stack.aclose()
        await tell_closed(self._trail, is_failing=error is not None)
        self._trail, self._journal = OFF, Journal()

    @property
    def trail(self) -> Trail:
        """Where what is done in this sandbox is recorded; for those who do something with it that belongs there."""
        self._backend_sandbox()
        return self._trail

    @property
    def enforcement(self) -> Mapping[str, str]:
        """Control -> the mechanism that enforces it here."""
        return self._backend_sandbox().report.mechanisms()

    @options_of_runs()
    async def run(self, code: str | bytes | None = None, **options: Unpack[RunOptions]) -> RunResult:
        """Run code, or a command with `argv`, to its end. A program that fails is a result, not an exception."""
        if self._session and code is not None and _is_python(options):
            return await self._session.run(code, **options)
        request = await self._request(code, options)
        if refused := await self._refusal(request):
            return refused
        build = plan_build(request, self.policy)
        return await self._with_artifacts(await (run_compiled(build, self._run) if build else self._run(request)))

    async def _request(self, code: str | bytes | None, options: RunOptions) -> RunRequest:
        async with self._journal.telling_denials("run"):
            return make_request(self.policy, code, options)

    async def _refusal(self, request: RunRequest) -> RunResult | None:
        """What there is to say to a command that the policy does not allow, which then does not even begin."""
        refused = await denials(self.policy, request)
        if not refused:
            return None
        result = denied_result(refused, self.policy)
        await self._journal.denied(result)
        return result

    async def change_policy(self, policy: AnyPolicy) -> None:
        """Other network rules from now on, for runs under way too: what they no longer allow is closed at once.

        Everything else of a sandbox is as it was opened.
        """
        box, policy = self._backend_sandbox(), read_policy(policy)
        _check_change(self.policy, policy)
        if self._egress is not None:
            select_backend(policy).check(policy)
            await wait_for_gateway(partial(self._egress.change, policy))
            box.change_ports(self._egress.ports)
        self.policy = policy
        await self._journal.policy_changed(policy)

    async def _run(self, request: RunRequest) -> RunResult:
        async with self._entry(request) as entry, self._run_network(entry.run_id, request) as network:
            entry.follow(network.follow())
            async with self._started(_equipped(request, network)) as execution:
                entry.started()
                if not await execution.wait_shortly():
                    await entry.tell_started()
                taken = await record(execution)
            entry.saw(1, taken.stdout)
            entry.saw(2, taken.stderr)
            return await entry.concluded(self._result(taken, entry.run_id, network))

    @asynccontextmanager
    async def _started(self, request: RunRequest) -> AsyncIterator[LiveExecution]:
        """The execution of a `run` or `stream`, which `send_signal` reaches for as long as it is under way."""
        async with self._backend_sandbox().start(request) as execution:
            self._executions.add(execution)
            try:
                yield execution
            finally:
                self._executions.discard(execution)

    async def send_signal(self, number: int | signal.Signals) -> None:
        """Sends a signal to the first process of each `run` and `stream` under way.

        In a session, SIGINT interrupts the run, and other signals do nothing.
        """
        checked = checked_signal(number)
        for execution in self._executions:
            execution.send_signal(checked)
        if self._session and checked == signal.SIGINT:
            await self._session.interrupt()

    def _entry(self, request: RunRequest) -> RunEntry:
        """Of a run that starts as soon as it is recorded."""
        if self._trail.is_on:
            self._backend_sandbox().expect()
        return self._journal.run(request)

    def _run_network(self, name: str, request: RunRequest | None = None) -> AbstractAsyncContextManager[RunNetwork]:
        if self._network is None or (request and request.is_offline):
            return nullcontext(RunNetwork())
        return self._network.open_run(name)

    @options_of_runs()
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
        if refused := await self._refusal(request):
            return _finished(refused)
        build = plan_build(request, self.policy)
        return self._collecting(stream_compiled(build, self._stream, self._run) if build else self._stream(request))

    async def _collecting(self, stream: AsyncGenerator[Event, None]) -> AsyncGenerator[Event, None]:
        async with aclosing(stream) as events:
            async for event in events:
                yield Finished(await self._with_artifacts(event.result)) if isinstance(event, Finished) else event

    async def _stream(self, request: RunRequest) -> AsyncGenerator[Event, None]:
        async with self._entry(request) as entry, self._run_network(entry.run_id, request) as network:
            entry.follow(network.follow())
            async with self._started(_equipped(request, network)) as execution:
                entry.started()
                await entry.tell_started()
                last_words = b""
                async for output in execution.output():
                    event = as_event(output)
                    entry.saw_event(event)
                    if isinstance(event, Stderr):
                        last_words = (last_words + event.data)[-LAST_WORDS_BYTES:]
                    yield event
                outcome = execution.outcome()
            result = await entry.concluded(self._result(Record(outcome), entry.run_id, network, last_words))
        yield Finished(result)

    def session(self) -> AsyncSession:
        """`async with box.session() as session`: Python state that lives on between runs, in this workspace."""
        current = RunNetwork()

        @asynccontextmanager
        async def open_session() -> AsyncIterator[BackendSession]:
            nonlocal current
            box = self._backend_sandbox()
            async with (
                self._run_network(_identifier("session")) as current,
                box.open_session(current.endpoint) as opened,
            ):
                yield opened

        async def report(taken: Record, run_id: str) -> RunResult:
            return await self._report(current, taken, run_id)

        return AsyncSession(self.policy, open_session, lambda: self._journal, report, lambda: current.follow())

    @options_of_runs()
    async def start(
        self, code: str | bytes | None = None, *, terminal: tuple[int, int] | None = None, **options: Unpack[RunOptions]
    ) -> AsyncBackgroundRun:
        """As `run`, without waiting for the end; its input stays open for `write`.

        With `terminal`, its size in columns and rows, the program's standard streams are a terminal.
        """
        async with self._journal.telling_denials("run"):
            request = make_live_request(self.policy, code, terminal, options)
            if refused := await denials(self.policy, request):
                raise DeniedError("\n".join(map(str, refused)))
        if plan_build(request, self.policy):
            raise UsageError(f"{request.language} has to be compiled, which only `run` and `stream` do")
        opened = self._backend_sandbox()
        async with self._entry(request) as entry, AsyncExitStack() as stack:
            network = await stack.enter_async_context(self._run_network(entry.run_id, request))
            entry.follow(network.follow())
            execution = await stack.enter_async_context(opened.start(_equipped(request, network)))
            entry.started()
            await entry.tell_started()
            run = AsyncBackgroundRun(execution, stack.pop_all(), entry, partial(self._report, network))
        self._background = [*(other for other in self._background if not other.is_concluded), run]
        return run

    async def _report(self, network: RunNetwork, taken: Record, run_id: str) -> RunResult:
        return await self._with_artifacts(self._result(taken, run_id, network))

    def _result(self, taken: Record, run_id: str, network: RunNetwork, last_words: bytes = b"") -> RunResult:
        image_digest = self._opened.image_digest if self._opened else None
        result = RunResult.of(taken, run_id, self.policy.digest, image_digest, network.new_denials())
        result = network_hint(result, taken.stderr or last_words, is_open=self._egress is not None)
        return _full_mount_hint(result, self.policy)

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
            raise UsageError("the sandbox is not open; use it inside `async with AsyncSandbox(policy) as box:`")
        return self._opened


def _request(section: Environment) -> str:
    from fumehood.environments import EnvironmentSpec

    return EnvironmentSpec.of(section).request


def sandboxed_installer(audit: AuditChoice = None) -> InstallRunner:
    """For a store of environments: installs in a sandbox of its own, which is recorded like any other."""
    from fumehood.sandbox.packages import SandboxedInstaller

    return SandboxedInstaller(lambda policy: AsyncSandbox(policy, audit=audit))


def _use_environment(section: Environment, progress: Callable[[str], None] | None, trail: Trail) -> EnvironmentLease:
    from fumehood.environments import EnvironmentSpec, EnvironmentStore

    store = EnvironmentStore.open_default(sandboxed_installer(trail))
    return store.use(EnvironmentSpec.of(section), progress, anyio.from_thread.check_cancelled)


def _admit(policy: Policy, learn: bool) -> SandboxEgress:
    from fumehood.egress import shared_gateway

    return shared_gateway().admit(policy, _identifier("sandbox"), learn=learn)


def _equipped(request: RunRequest, network: RunNetwork) -> RunRequest:
    return replace(request, endpoint=network.endpoint) if network.endpoint else request


def _identifier(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(8)}"


def _full_mount_hint(result: RunResult, policy: Policy) -> RunResult:
    """Says of a program that failed on a full disk when it is the host's, behind a folder that is mounted rw."""
    if result.cause is not Cause.DISK:
        return result
    for mount in policy.filesystem.mounts:
        if mount.mode == "rw" and _is_full(mount.source):
            detail = f"the host's disk behind {mount.target} is full; make room where {mount.source} is"
            return replace(result, detail=detail)
    return result


def _is_full(path: str) -> bool:
    try:
        usage = os.statvfs(path)
    except OSError:  # it is on another machine, or gone
        return False
    return usage.f_bavail * usage.f_frsize < _ROOM_BYTES or (usage.f_files > 0 and usage.f_favail == 0)


def _check_change(old: Policy, new: Policy) -> None:
    if not old.network.allow and new.network.allow:
        raise UsageError("this sandbox was opened without network rules, and gets none; open another one with them")
    changes = old.model_copy(update={"network": new.network}).diff(new)
    if changes:
        raise UsageError(f"an open sandbox can get other network rules and nothing else; this {'; '.join(changes)}")


async def _finished(result: RunResult) -> AsyncGenerator[Event, None]:
    yield Finished(result)


def _is_python(options: RunOptions) -> bool:
    return options.get("language", "python") == "python"
