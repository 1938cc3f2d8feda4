"""The facade: `AsyncSandbox`, where the caller's wishes meet a policy and a backend.

A sandbox is one place with one policy and one workspace. Every run in it is a fresh process in fresh namespaces; what
runs of one sandbox share is the workspace, a loopback if the policy says so, and nothing else.
"""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager, nullcontext
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar, Unpack

import anyio
import anyio.from_thread
import anyio.to_thread

from fumehood.audit.trail import Trail
from fumehood.backends.interface import (
    Backend,
    BackendSandbox,
    Conversation,
    LiveExecution,
    PackageFolder,
    RunRequest,
)
from fumehood.backends.selection import select_backend
from fumehood.concurrency.threads import run_whole
from fumehood.errors import DeniedError, UsageError
from fumehood.events import Event, Finished, Stderr
from fumehood.keywords import known_keywords
from fumehood.policy import AnyPolicy, Environment, Policy, deny_all, read_policy
from fumehood.policy.arguments import Seconds, add_packages, read_seconds
from fumehood.results import Cause, RunOutput, RunResult, Status
from fumehood.sandbox.admission import check_change, refuse_ungated, warn_of_dangers
from fumehood.sandbox.audit import AuditChoice, RunAudit, SandboxAudit
from fumehood.sandbox.background import AsyncBackgroundRun, checked_signal
from fumehood.sandbox.command_check import denials, denied_result
from fumehood.sandbox.compile import plan_build, run_compiled, stream_compiled
from fumehood.sandbox.egress import LAST_WORDS_BYTES, RunNetwork, SandboxNetwork, wait_for_gateway
from fumehood.sandbox.files import AsyncFiles
from fumehood.sandbox.files.artifacts import ArtifactTracker
from fumehood.sandbox.files.paths import sandbox_path
from fumehood.sandbox.hints import with_hint
from fumehood.sandbox.output import as_event, record
from fumehood.sandbox.ports import AsyncExposedPort, check_port, expose
from fumehood.sandbox.request import (
    RunOptions,
    make_live_request,
    make_request,
    options_of_runs,
    place_in_policy,
    refuse_secrets,
)
from fumehood.sandbox.session import AsyncSession, SessionProcess
from fumehood.tenant import LOCAL, Tenant

if TYPE_CHECKING:
    from fumehood.egress import SandboxEgress
    from fumehood.environments import EnvironmentLease, InstallRunner
    from fumehood.sandbox.files.errors import Converse
    from fumehood.sandbox.files.watch import AsyncWatch
    from fumehood.sandbox.installation import Installation
    from fumehood.sandbox.snapshots import PolicyUse, WorkspaceState
    from fumehood.snapshots import Snapshot


PLACE = "this machine"


class AsyncSandbox:
    """`async with AsyncSandbox(policy) as box`: opened, used, closed. Without a policy everything is denied.

    `files` reads and writes files of the workspace. With `session`, Python code runs in one session of the sandbox's;
    commands and other languages do not. `packages` of Python are added to the policy's, such as ["pandas"]. Opening the
    first sandbox with new packages installs them; `progress` is called with a line for each step, from another thread.
    With `learn`, nothing gets out whatever the policy allows, and `denials` of results have all that was tried.
    `audit` is where events are recorded: a log, a trail in one that names the actor and its tenant, a log's folder, or
    False for none at all. By default it is the log that FUMEHOOD_AUDIT names, else the user's own.
    A policy with `approvals` opens only if it is `gated`: the caller asks for them (`fumehood.tools.approvals`) before
    anything runs here. With `keep_tmp`, runs and `files` share /tmp as they share the workspace. `snapshot` is one of a
    workspace (or its name, or its id) that this one begins with. A server says with `tenant` whose the sandbox is.
    """

    _is_for_one_run = False

    @known_keywords(elsewhere=place_in_policy)
    def __init__(
        self,
        policy: AnyPolicy | None = None,
        *,
        packages: Sequence[str] = (),
        session: bool = False,
        progress: Callable[[str], None] | None = None,
        learn: bool = False,
        audit: AuditChoice = None,
        gated: bool = False,
        keep_tmp: bool = False,
        snapshot: Snapshot | str | None = None,
        tenant: Tenant = LOCAL,
    ) -> None:
        self.policy = add_packages(read_policy(policy) or deny_all(), packages)
        self._tenant, self.secrets = tenant, tenant.secrets
        self._audit = SandboxAudit(audit, tenant)
        self._artifacts = ArtifactTracker(self.policy, self._converse)
        self.files = AsyncFiles(self.policy, self._converse, self._audit, self._artifacts, keeps_tmp=keep_tmp)
        self.collects_artifacts = True
        """Whether results list artifacts. Finding them takes time, for nothing where no caller reads the list."""
        self._is_gated, self._learn, self._keeps_tmp, self._progress = gated, learn, keep_tmp, progress
        self._session = self.session() if session else None
        self._background: list[AsyncBackgroundRun] = []
        self._watches: list[AsyncWatch] = []
        self._opened: BackendSandbox | None = None
        self._egress: SandboxEgress | None = None
        self._network: SandboxNetwork | None = None
        self._stack = AsyncExitStack()
        self._executions: set[LiveExecution] = set()
        self._ports: list[AsyncExposedPort] = []
        self._state = None if snapshot is None else _make_state(tenant, snapshot)

    @classmethod
    def open(
        cls,
        name: str,
        policy: AnyPolicy | None = None,
        *,
        once: bool = False,
        create: bool = False,
        wait: bool = False,
        session: bool = False,
        progress: Callable[[str], None] | None = None,
        audit: AuditChoice = None,
        gated: bool = False,
        keep_tmp: bool = False,
    ) -> Self:
        """A sandbox with a name: its workspace is as it was saved last, and saved when the block ends without an error.

        It has the policy that it was made with, unless another one is given, which it keeps from then on; with `once`,
        that one is for this use alone. One process at a time uses it: without `wait`, a sandbox that is in use is a
        `SandboxBusyError`. With `create` it is made if there is none.
        """
        make = partial(cls, session=session, progress=progress, audit=audit, gated=gated, keep_tmp=keep_tmp)
        return open_named(make, LOCAL, name, policy, create=create, wait=wait, once=once)

    async def __aenter__(self) -> Self:
        if self._opened is not None:
            raise UsageError("this sandbox is open already; make another AsyncSandbox for a second place")
        async with self._audit.opening(self.policy) as trail, AsyncExitStack() as stack:
            self._tenant.check(self.policy)
            if self._state is not None:
                await self._state.acquire(stack, self.policy, trail)
            backend = select_backend(self.policy)
            refuse_ungated(self.policy, backend.name, is_gated=self._is_gated)
            backend.check(self.policy, self._tenant)
            warn_of_dangers(self.policy)
            packages = await self._install_packages(backend, stack, trail)
            self._egress = await self._admit_to_gateway(stack)
            ports = self._egress.ports if self._egress else ()
            opened = await stack.enter_async_context(backend.open(self.policy, packages, ports, self._tenant))
            if self._keeps_tmp:
                opened.keep_tmp()
            if self._egress:
                self._network = SandboxNetwork(self._egress, is_shared=opened.shares_listeners)
            await self._audit.opened(self.policy, backend.name, opened, packages, is_held=self._is_for_one_run)
            if self._state is not None:
                await self._state.restore(opened.files, self.policy, self._audit, self._artifacts)
            self._opened, self._stack = opened, stack.pop_all()
        return self

    async def _admit_to_gateway(self, stack: AsyncExitStack) -> SandboxEgress | None:
        """Without network rules there is no gateway, no thread and no listener."""
        if not self.policy.network.allow and not self._learn:
            return None
        egress = await run_whole(partial(_admit, self.policy, self._learn, self._tenant), lambda made: made.close())
        stack.push_async_callback(wait_for_gateway, egress.close)
        return egress

    async def _install_packages(self, backend: Backend, stack: AsyncExitStack, trail: Trail) -> PackageFolder | None:
        """Installs packages in a worker thread, which ends the installation when the task is cancelled."""
        section = self.policy.environment
        if not section.has_packages:
            return None
        if await backend.has_packages(self.policy, await anyio.to_thread.run_sync(_request, section), self._tenant):
            return None
        lease = await anyio.to_thread.run_sync(_use_environment, section, self._progress, trail, self._tenant)
        stack.callback(lease.close)
        return PackageFolder(str(lease.environment.folder), lease.environment.digest)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        opened, self._opened = self._opened, None
        self._egress = self._network = None
        if parts := (*self._background, *self._watches, *([self._session] if self._session else [])):
            with anyio.CancelScope(shield=True):
                for part in parts:
                    await part.close()
        try:
            if error is None and opened is not None and self._state is not None and self._state.is_named:
                await self._state.save(opened.files, self.policy, self._audit)
        finally:
            await self._stack.aclose()
        await self._audit.closed(is_failing=error is not None)

    def __repr__(self) -> str:
        name = self.policy.name or self.policy.digest.removeprefix("sha256:")[:12]
        return f"{type(self).__name__}({'open' if self.is_open else 'not open'}, policy {name!r})"

    @property
    def is_open(self) -> bool:
        return self._opened is not None

    @property
    def trail(self) -> Trail:
        """The sandbox's trail in the audit log, for callers who record their own events beside its."""
        self._backend_sandbox()
        return self._audit.trail

    @property
    def enforcement(self) -> Mapping[str, str]:
        """Control -> the mechanism that enforces it here; `place` is where that is."""
        return {**self._backend_sandbox().report.mechanisms(), "place": PLACE}

    async def snapshot(self, name: str | None = None) -> Snapshot:
        """The workspace as it is now, kept on disk until it is removed or too old. No program may be running."""
        converse = self._at_rest("a snapshot")
        self._state = self._state or _make_state(self._tenant)
        return await self._state.snapshot(name, converse, self.policy, self._audit)

    async def save(self) -> Snapshot:
        """Keeps the state of a named sandbox now, and not only when the block ends."""
        converse = self._at_rest("saving")
        self._state = self._state or _make_state(self._tenant)
        return await self._state.save(converse, self.policy, self._audit)

    async def fork(self, count: int = 1) -> list[AsyncSandbox]:
        """Sandboxes with the same policy that begin with this workspace, each to be opened like this one.

        On disk they share all of it; each gets a workspace of its own when it opens.
        """
        converse = self._at_rest("forking")
        self._state = self._state or _make_state(self._tenant)
        return [self._copy(state) for state in await self._state.fork(count, converse, self.policy, self._audit)]

    def _copy(self, state: WorkspaceState) -> AsyncSandbox:
        box = AsyncSandbox(
            self.policy,
            progress=self._progress,
            learn=self._learn,
            audit=self._audit.choice,
            gated=self._is_gated,
            keep_tmp=self._keeps_tmp,
            session=self._session is not None,
            tenant=self._tenant,
        )
        box._state = state
        return box

    def release(self) -> None:
        """Of a fork that is never opened: what it would begin with need not be kept for it any more."""
        if self._state is not None and self._opened is None:
            self._state.release()

    def _at_rest(self, what: str) -> Converse:
        if self._executions:
            raise UsageError(f"{what} needs a workspace that no program is writing to; wait for the runs under way")
        return self._backend_sandbox().files

    @options_of_runs()
    async def run(self, code: str | bytes | None = None, **options: Unpack[RunOptions]) -> RunResult:
        """Run code, or a command with `argv`, to its end. A program that fails is a result, not an exception."""
        if self._session and code is not None and _is_python(options):
            return await self._session.run(code, **options)
        request = await self._request(code, options)
        if refused := await self._refusal(request):
            return refused
        build = plan_build(request, self.policy)
        is_last = self._closes_with_run()
        run = run_compiled(build, self._run) if build else self._run(request, is_last=is_last)
        return await self._with_artifacts(await run)

    def _closes_with_run(self) -> bool:
        """Whether nothing but closing the sandbox follows its run, and that waits for nothing."""
        waits = self._egress is not None or not self._backend_sandbox().closes_at_once
        return self._is_for_one_run and not waits and not self.policy.filesystem.outputs

    async def _request(self, code: str | bytes | None, options: RunOptions) -> RunRequest:
        async with self._audit.denials("run"):
            request = make_request(self.policy, code, options)
            refuse_secrets(self.policy, request.environment, self.secrets)
        return request

    async def _refusal(self, request: RunRequest) -> RunResult | None:
        """The result of a command that the policy does not allow, and that does not start."""
        refused = await denials(self.policy, request)
        if not refused:
            return None
        result = denied_result(refused, self.policy)
        await self._audit.denied(result)
        return result

    def watch(
        self, path: str | os.PathLike[str] = "", *, recursive: bool = True, timeout: Seconds | None = None
    ) -> AsyncWatch:
        """`async for change in box.watch("out")`: what is created, modified, deleted and renamed in a folder.

        Ends with the sandbox, or after `timeout` without a change. `async with` begins before the first one is asked
        for. What comes and goes within a tenth of a second may not be seen.
        """
        from fumehood.sandbox.files.watch import AsyncWatch

        self._backend_sandbox()
        place = sandbox_path(path, keeps_tmp=self._keeps_tmp)
        seconds = None if timeout is None else read_seconds(timeout)
        watch = AsyncWatch(self._converse, place, self.policy, recursive=recursive, timeout_seconds=seconds)
        self._watches = [*(other for other in self._watches if not other.is_closed), watch]
        return watch

    async def install(
        self, *packages: str, allow_sdists: bool = False, progress: Callable[[str], None] | None = None
    ) -> Installation:
        """Installs packages of Python, such as "pandas==2.3.*", for every later run and the sessions under way.

        The sandbox's own pip does it, in HOME and through the sandbox's own network: `network.allow` has to open the
        package index. Wheels only, unless `allow_sdists`. `progress` is called with the installer's lines.
        """
        from fumehood.sandbox.installation import install

        self._backend_sandbox()
        shown, is_open = progress or self._progress, self._egress is not None
        return await install(self, packages, is_open=is_open, allow_sdists=allow_sdists, progress=shown)

    async def change_policy(self, policy: AnyPolicy) -> None:
        """Other network rules from now on, for runs under way too: what they no longer allow is closed at once.

        Everything else of a sandbox is as it was opened.
        """
        box, policy = self._backend_sandbox(), read_policy(policy)
        self._tenant.check(policy)
        check_change(self.policy, policy)
        if self._egress is not None:
            select_backend(policy).check(policy, self._tenant)
            self._audit.redact_secrets_of(policy)
            await wait_for_gateway(partial(self._egress.change, policy))
        taken = self._egress.ports if self._egress else ()
        for exposed in self._ports:
            if exposed.port not in policy.network.publish or exposed.port in taken:
                await exposed.close()
        if self._egress is not None:
            box.change_ports(taken)
        self.policy = policy
        await self._audit.policy_changed(policy)

    async def _run(self, request: RunRequest, *, is_last: bool = False) -> RunResult:
        async with self._run_audit(request) as audit:
            async with self._started(request, audit) as (execution, network):
                if not await execution.wait_shortly():
                    await audit.write_started()
                taken = await record(execution)
            audit.stdout(taken.stdout)
            audit.stderr(taken.stderr)
            result = self._result(taken, audit.run_id, network)
            if not is_last:
                return await audit.finished(result)
            await self._stack.aclose()
            return await self._audit.closed_with(audit, result)

    async def send_signal(self, number: int | signal.Signals) -> None:
        """Send a signal to the first process of each run under way.

        In a session, SIGINT interrupts the run, and other signals do nothing.
        """
        checked = checked_signal(number)
        for execution in self._executions:
            execution.send_signal(checked)
        if self._session and checked == signal.SIGINT:
            await self._session.interrupt()

    def _run_audit(self, request: RunRequest) -> RunAudit:
        """The audit of a run that starts as soon as its request is recorded."""
        if self._audit.trail.is_on:
            self._backend_sandbox().expect()
        return self._audit.run(request)

    @asynccontextmanager
    async def _started(self, request: RunRequest, audit: RunAudit) -> AsyncIterator[tuple[LiveExecution, RunNetwork]]:
        """The run under way, with its egress; leaving the block ends both."""
        opened = self._backend_sandbox()
        async with self._run_network(audit.run_id, request) as network:
            audit.follow(network.follow())
            async with opened.start(_equipped(request, network)) as execution:
                audit.started()
                self._executions.add(execution)
                try:
                    yield execution, network
                finally:
                    self._executions.discard(execution)

    def _run_network(self, name: str, request: RunRequest | None = None) -> AbstractAsyncContextManager[RunNetwork]:
        if self._network is None or (request and request.is_offline):
            return nullcontext(RunNetwork())
        return self._network.open_run(name)

    @options_of_runs()
    async def stream(
        self, code: str | bytes | None = None, **options: Unpack[RunOptions]
    ) -> AsyncGenerator[Event, None]:
        """Runs code and yields output as it appears. The last event is `Finished`; leaving early ends the run."""
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
        async with self._run_audit(request) as audit:
            async with self._started(request, audit) as (execution, network):
                await audit.write_started()
                last_words = b""
                async for output in execution.output():
                    event = as_event(output)
                    audit.output(event)
                    if isinstance(event, Stderr):
                        last_words = (last_words + event.data)[-LAST_WORDS_BYTES:]
                    yield event
                outcome = execution.outcome()
            result = await audit.finished(self._result(RunOutput(outcome), audit.run_id, network, last_words))
        yield Finished(result)

    def session(self) -> AsyncSession:
        """`async with box.session() as session`: Python state that lives on between runs, in this workspace."""
        return AsyncSession(self.policy, self._audit, self._open_session_process, self._report)

    @asynccontextmanager
    async def _open_session_process(self) -> AsyncIterator[SessionProcess]:
        box = self._backend_sandbox()
        async with self._run_network(_identifier("session")) as network, box.open_session(network.endpoint) as opened:
            yield SessionProcess(opened, network)

    @options_of_runs()
    async def start(
        self, code: str | bytes | None = None, *, terminal: tuple[int, int] | None = None, **options: Unpack[RunOptions]
    ) -> AsyncBackgroundRun:
        """Starts a run in the background, without waiting for its end; its input stays open for `write`.

        With `terminal`, its size in columns and rows, the program's standard streams are a terminal.
        """
        async with self._audit.denials("run"):
            request = make_live_request(self.policy, code, terminal, options)
            refuse_secrets(self.policy, request.environment, self.secrets)
            if refused := await denials(self.policy, request):
                raise DeniedError("\n".join(map(str, refused)))
        if plan_build(request, self.policy):
            raise UsageError(f"{request.language} has to be compiled, which only `run` and `stream` do")
        async with self._run_audit(request) as audit, AsyncExitStack() as stack:
            execution, network = await stack.enter_async_context(self._started(request, audit))
            await audit.write_started()
            run = AsyncBackgroundRun(execution, stack.pop_all(), audit, partial(self._report, network=network))
        self._background = [*(other for other in self._background if not other.is_concluded), run]
        return run

    async def expose(self, port: int) -> AsyncExposedPort:
        """Publishes a port of the programs inside at an address of this machine's loopback, which wants a token.

        The policy must list it in `network.publish`. It is the port of the loopback that all runs of this sandbox
        share. It answers until it is closed, or the sandbox is.
        """
        return await self._expose(port)

    async def expose_to(self, port: int, client_port: int) -> AsyncExposedPort:
        """As `expose`, for a caller elsewhere, whose own loopback has the address.

        Nothing listens here: the caller passes each connection to its `client_port` on, and it is handed to
        `AsyncExposedPort.admit`. Who may ask is decided here, and recorded.
        """
        return await self._expose(port, client_port)

    async def _expose(self, port: int, client_port: int | None = None) -> AsyncExposedPort:
        box = self._backend_sandbox()
        async with self._audit.denials("expose"):
            check_port(self.policy, port, self._egress.ports if self._egress else ())
        exposed = await expose(port, box.connect, self._audit.trail, client_port)
        self._ports = [*(other for other in self._ports if other.is_open), exposed]
        self._stack.push_async_callback(exposed.close)
        return exposed

    async def _report(self, taken: RunOutput, run_id: str, network: RunNetwork) -> RunResult:
        result = self._result(taken, run_id, network)
        # A run in the background that the end of its sandbox has ended has no artifacts.
        return result if self._opened is None else await self._with_artifacts(result)

    def _result(self, taken: RunOutput, run_id: str, network: RunNetwork, last_words: bytes = b"") -> RunResult:
        image_digest = self._opened.image_digest if self._opened else None
        news = network.news()
        result = RunResult.of(taken, run_id, self.policy.digest, image_digest, news.denials)
        is_open = self._egress is not None
        return with_hint(result, taken.stderr or last_words, self.policy, is_open=is_open, failures=news.failures)

    async def _with_artifacts(self, result: RunResult) -> RunResult:
        """The result with the run's artifacts. More of them than allowed is a failure, whatever the exit code."""
        if not self.policy.filesystem.outputs or not self.collects_artifacts:
            return result
        collection = await self._artifacts.collect()
        await self._audit.artifacts(result.run_id, collection.artifacts, collection.problem)
        if collection.problem is None or not result.ok:
            return replace(result, artifacts=collection.artifacts)
        return replace(result, status=Status.RESOURCE_EXCEEDED, cause=Cause.OUTPUT, detail=collection.problem)

    def _converse(self) -> AbstractAsyncContextManager[Conversation]:
        return self._backend_sandbox().files()

    def _backend_sandbox(self) -> BackendSandbox:
        if self._opened is None:
            raise UsageError("the sandbox is not open; use it inside `async with AsyncSandbox(policy) as box:`")
        return self._opened


Box = TypeVar("Box", bound=AsyncSandbox)


class OneRunSandbox(AsyncSandbox):
    """A sandbox that only `run_once` sees open.

    Its opening is recorded with the request of the run, before that starts, and its closing with the end of the run,
    before the result is returned.
    """

    _is_for_one_run = True


async def run_once(box: OneRunSandbox, code: str | bytes | None, options: RunOptions) -> RunResult:
    async with box:
        return await box.run(code, **options)


def open_named(
    make: Callable[[Policy], Box],
    tenant: Tenant,
    name: str,
    policy: AnyPolicy | None,
    *,
    create: bool,
    wait: bool,
    once: bool = False,
) -> Box:
    """A sandbox of this tenant's that `make` makes, and that has a name; see `AsyncSandbox.open`."""
    from fumehood.sandbox.snapshots import PolicyUse, policy_of

    wanted = None if policy is None else read_policy(policy)
    use = PolicyUse.OWN if wanted is None else PolicyUse.ONCE if once else PolicyUse.FROM_NOW_ON
    box = make(policy_of(tenant, name, wanted, create=create))
    state = _make_state(tenant, name=name, wait=wait, create=create, use=use)
    box._state = state  # pyright: ignore[reportPrivateUsage]  # of this module
    return box


def _make_state(
    tenant: Tenant,
    snapshot: Snapshot | str | None = None,
    *,
    name: str | None = None,
    wait: bool = False,
    create: bool = False,
    use: PolicyUse | None = None,
) -> WorkspaceState:
    from fumehood.sandbox.snapshots import PolicyUse, WorkspaceState

    return WorkspaceState(tenant, snapshot, name=name, wait=wait, create=create, use=use or PolicyUse.OWN)


def _request(section: Environment) -> str:
    from fumehood.environments import EnvironmentSpec

    return EnvironmentSpec.of(section).request


def sandboxed_installer(audit: AuditChoice = None, tenant: Tenant = LOCAL) -> InstallRunner:
    """The installer of a store of environments: it runs in a sandbox of its own, which is recorded like any other."""
    from fumehood.sandbox.packages import SandboxedInstaller

    return SandboxedInstaller(lambda policy: AsyncSandbox(policy, audit=audit, tenant=tenant.installer()))


def _use_environment(
    section: Environment, progress: Callable[[str], None] | None, trail: Trail, tenant: Tenant
) -> EnvironmentLease:
    from fumehood.environments import EnvironmentSpec, EnvironmentStore

    store = EnvironmentStore.open_for(tenant, sandboxed_installer(trail, tenant))
    return store.use(EnvironmentSpec.of(section), progress, anyio.from_thread.check_cancelled)


def _admit(policy: Policy, learn: bool, tenant: Tenant) -> SandboxEgress:
    from fumehood.egress import shared_gateway

    return shared_gateway().admit(policy, _identifier("sandbox"), learn=learn, tenant=tenant)


def _equipped(request: RunRequest, network: RunNetwork) -> RunRequest:
    return replace(request, endpoint=network.endpoint) if network.endpoint else request


def _identifier(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(8)}"


async def _finished(result: RunResult) -> AsyncGenerator[Event, None]:
    yield Finished(result)


def _is_python(options: RunOptions) -> bool:
    return options.get("language", "python") == "python"
