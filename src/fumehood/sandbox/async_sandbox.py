"""The facade: `AsyncSandbox`, where the caller's wishes meet a policy and a backend.

A sandbox is one place with one policy and one workspace. Every run in it is a fresh process in fresh namespaces; what
runs of one sandbox share is the workspace, a loopback if the policy says so, and nothing else.
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar, Unpack

import anyio

from fumehood.audit.trail import Trail
from fumehood.backends.interface import EnforcementReport
from fumehood.errors import UsageError
from fumehood.events import Event
from fumehood.keywords import known_keywords
from fumehood.policy import AnyPolicy, Policy, deny_all, read_policy
from fumehood.policy.arguments import Seconds, add_packages
from fumehood.results import RunResult
from fumehood.sandbox.admission import admit
from fumehood.sandbox.audit import AuditChoice
from fumehood.sandbox.background import AsyncBackgroundRun, checked_signal
from fumehood.sandbox.core import SandboxCore
from fumehood.sandbox.files import AsyncFiles
from fumehood.sandbox.files.artifacts import ArtifactTracker
from fumehood.sandbox.files.paths import sandbox_path
from fumehood.sandbox.files.watch import AsyncWatch, Watches
from fumehood.sandbox.optional_state import OptionalState, find_named
from fumehood.sandbox.ports import AsyncExposedPort, SandboxPorts
from fumehood.sandbox.provision import admit_to_gateway, install_packages
from fumehood.sandbox.report import RunReport
from fumehood.sandbox.request import RunOptions, options_of_runs, place_in_policy
from fumehood.sandbox.runs import SandboxRuns
from fumehood.sandbox.session import AsyncSession
from fumehood.sandbox.workspace_access import WorkspaceAccess
from fumehood.tenant import LOCAL, Tenant

if TYPE_CHECKING:
    from fumehood.environments import InstallRunner
    from fumehood.sandbox.installation import Installation
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
        core = self._core = SandboxCore(add_packages(read_policy(policy) or deny_all(), packages), tenant, audit)
        self.secrets = tenant.secrets
        artifacts = self._artifacts = ArtifactTracker(core.policy, core.converse)
        self.files = AsyncFiles(core.policy, core.converse, core.audit, artifacts, keeps_tmp=keep_tmp)
        self.collects_artifacts = True
        """Whether results list artifacts. Finding them takes time, for nothing where no caller reads the list."""
        self._is_gated, self._learn, self._keeps_tmp, self._progress = gated, learn, keep_tmp, progress
        report = RunReport(core, artifacts, lambda: self.collects_artifacts)
        self._runs = SandboxRuns(core, report, is_for_one_run=self._is_for_one_run)
        self._session = self._runs.session() if session else None
        self._ports, self._watches = SandboxPorts(core), Watches(core.converse, core.policy)
        self._saved = OptionalState(core, snapshot)
        self.workspace = WorkspaceAccess(core, self._runs, self._watches, self._session, artifacts)
        self._copy = partial(
            AsyncSandbox,
            session=session,
            progress=progress,
            learn=learn,
            audit=audit,
            gated=gated,
            keep_tmp=keep_tmp,
            tenant=tenant,
        )

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
        if self.is_open:
            raise UsageError("this sandbox is open already; make another AsyncSandbox for a second place")
        policy, tenant, audit = self.policy, self._core.tenant, self._core.audit
        async with audit.opening(policy) as trail, AsyncExitStack() as stack:
            tenant.check(policy)
            await self._saved.acquire(stack, trail)
            backend = admit(policy, tenant, is_gated=self._is_gated)
            make_installer = partial(sandboxed_installer, trail, tenant)
            packages = await install_packages(policy, backend, tenant, stack, make_installer, self._progress)
            egress = await admit_to_gateway(policy, tenant, stack, learn=self._learn)
            ports = egress.ports if egress else ()
            opened = await stack.enter_async_context(backend.open(policy, packages, ports, tenant))
            if self._keeps_tmp:
                opened.keep_tmp()
            await audit.opened(policy, backend.name, opened, packages, is_held=self._is_for_one_run)
            await self._saved.restore(opened.files, self._artifacts)
            self._core.opened(opened, egress, stack.pop_all())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        opened = self._core.closing()
        with anyio.CancelScope(shield=True):
            await self.workspace.end_programs()
        try:
            if error is None and opened is not None:
                await self._saved.save_at_end(opened.files)
        finally:
            await self._core.stack.aclose()
        await self._core.audit.closed(is_failing=error is not None)

    def __repr__(self) -> str:
        name = self.policy.name or self.policy.digest.removeprefix("sha256:")[:12]
        return f"{type(self).__name__}({'open' if self.is_open else 'not open'}, policy {name!r})"

    @property
    def is_open(self) -> bool:
        return self._core.is_open

    @property
    def policy(self) -> Policy:
        """The one in force."""
        return self._core.policy

    @property
    def trail(self) -> Trail:
        """The sandbox's trail in the audit log, for callers who record their own events beside its."""
        self._core.check_open()
        return self._core.audit.trail

    @property
    def enforcement(self) -> Mapping[str, str]:
        """Control -> the mechanism that enforces it here; `place` is where that is."""
        return {**self._core.backend.report.mechanisms(), "place": PLACE}

    @property
    def enforcement_report(self) -> EnforcementReport:
        """As `enforcement`, with what is enforced only in part."""
        return self._core.backend.report

    async def snapshot(self, name: str | None = None) -> Snapshot:
        """The workspace as it is now, kept on disk until it is removed or too old. No program may be running."""
        self.workspace.check_rest("a snapshot")
        return await self._saved.snapshot(name)

    async def save(self) -> Snapshot:
        """Keeps the state of a named sandbox now, and not only when the block ends."""
        self.workspace.check_rest("saving")
        return await self._saved.save()

    async def fork(self, count: int = 1) -> list[AsyncSandbox]:
        """Sandboxes with the same policy that begin with this workspace, each to be opened like this one.

        On disk they share all of it; each gets a workspace of its own when it opens.
        """
        self.workspace.check_rest("forking")
        copies: list[AsyncSandbox] = []
        for state in await self._saved.fork(count):
            copies.append(copy := self._copy(self.policy))
            copy._saved.use(state)
        return copies

    def record_in(self, audit: AuditChoice) -> None:
        """Of a fork that is not open yet: its own trail, in place of that of the sandbox it is a copy of."""
        self._core.audit.choice = audit

    def release(self) -> None:
        """Of a fork that is never opened: what it would begin with need not be kept for it any more."""
        if not self.is_open:
            self._saved.release()

    @options_of_runs()
    async def run(self, code: str | bytes | None = None, **options: Unpack[RunOptions]) -> RunResult:
        """Run code, or a command with `argv`, to its end. A program that fails is a result, not an exception."""
        if self._session and code is not None and _is_python(options):
            return await self._session.run(code, **options)
        return await self._runs.run(code, options)

    @options_of_runs()
    async def stream(
        self, code: str | bytes | None = None, **options: Unpack[RunOptions]
    ) -> AsyncGenerator[Event, None]:
        """Runs code and yields output as it appears. The last event is `Finished`; leaving early ends the run."""
        if self._session and code is not None and _is_python(options):
            stream = self._session.stream(code, **options)
        else:
            stream = await self._runs.events(code, options)
        async with aclosing(stream) as events:
            async for event in events:
                yield event

    @options_of_runs()
    async def start(
        self, code: str | bytes | None = None, *, terminal: tuple[int, int] | None = None, **options: Unpack[RunOptions]
    ) -> AsyncBackgroundRun:
        """Starts a run in the background, without waiting for its end; its input stays open for `write`.

        With `terminal`, its size in columns and rows, the program's standard streams are a terminal.
        """
        return await self._runs.start(code, terminal, options)

    def session(self) -> AsyncSession:
        """`async with box.session() as session`: Python state that lives on between runs, in this workspace."""
        return self._runs.session()

    async def send_signal(self, number: int | signal.Signals) -> None:
        """Send a signal to the first process of each run under way.

        In a session, SIGINT interrupts the run, and other signals do nothing.
        """
        checked = checked_signal(number)
        self._runs.send_signal(checked)
        if self._session and checked == signal.SIGINT:
            await self._session.interrupt()

    def watch(
        self, path: str | os.PathLike[str] = "", *, recursive: bool = True, timeout: Seconds | None = None
    ) -> AsyncWatch:
        """`async for change in box.watch("out")`: what is created, modified, deleted and renamed in a folder.

        Ends with the sandbox, or after `timeout` without a change. `async with` begins before the first one is asked
        for. What comes and goes within a tenth of a second may not be seen.
        """
        self._core.check_open()
        place = sandbox_path(path, keeps_tmp=self._keeps_tmp)
        return self._watches.watch(place, recursive=recursive, timeout=timeout)

    async def install(
        self, *packages: str, allow_sdists: bool = False, progress: Callable[[str], None] | None = None
    ) -> Installation:
        """Installs packages of Python, such as "pandas==2.3.*", for every later run and the sessions under way.

        The sandbox's own pip does it, in HOME and through the sandbox's own network: `network.allow` has to open the
        package index. Wheels only, unless `allow_sdists`. `progress` is called with the installer's lines.
        """
        from fumehood.sandbox.installation import install

        self._core.check_open()
        shown, is_open = progress or self._progress, self._core.has_network
        return await install(self, packages, is_open=is_open, allow_sdists=allow_sdists, progress=shown)

    async def expose(self, port: int) -> AsyncExposedPort:
        """Publishes a port of the programs inside at an address of this machine's loopback, which wants a token.

        The policy must list it in `network.publish`. It is the port of the loopback that all runs of this sandbox
        share. It answers until it is closed, or the sandbox is.
        """
        return await self._ports.expose(port)

    async def expose_to(self, port: int, client_port: int) -> AsyncExposedPort:
        """As `expose`, for a caller elsewhere, whose own loopback has the address.

        Nothing listens here: the caller passes each connection to its `client_port` on, and it is handed to
        `AsyncExposedPort.admit`. Who may ask is decided here, and recorded.
        """
        return await self._ports.expose(port, client_port)

    async def change_policy(self, policy: AnyPolicy) -> None:
        """Other network rules from now on, for runs under way too: what they no longer allow is closed at once.

        Everything else of a sandbox is as it was opened.
        """
        self._core.check_open()
        new = read_policy(policy)
        await self._core.change_gateway_rules(new)
        await self._ports.close_refused(new)
        await self._core.put_in_force(new)


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
    wanted = None if policy is None else read_policy(policy)
    found, state = find_named(tenant, name, wanted, create=create, wait=wait, once=once)
    box = make(found)
    box._saved.use(state)  # pyright: ignore[reportPrivateUsage]  # of this module
    return box


def sandboxed_installer(audit: AuditChoice = None, tenant: Tenant = LOCAL) -> InstallRunner:
    """The installer of a store of environments: it runs in a sandbox of its own, which is recorded like any other."""
    from fumehood.sandbox.sandboxed_installer import SandboxedInstaller

    return SandboxedInstaller(lambda policy: AsyncSandbox(policy, audit=audit, tenant=tenant.installer()))


def _is_python(options: RunOptions) -> bool:
    return options.get("language", "python") == "python"
