"""`Sandbox` and `run`: the same as `AsyncSandbox`, here or at a server, and every call waits."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from types import MethodType, TracebackType
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Self, TypeVar, Unpack, cast

from fumehood.audit import Trail
from fumehood.blocking.driver import blocking, blocking_iterator, blocking_part
from fumehood.blocking.parts import BackgroundRun, ExposedPort, Files, Session, Watch
from fumehood.concurrency.process import process_key
from fumehood.concurrency.shared_loop import SharedLoop, shared_loop
from fumehood.errors import UsageError
from fumehood.keywords import known_keywords
from fumehood.policy import AnyPolicy, Policy
from fumehood.policy.arguments import Seconds
from fumehood.remote.place import find_server
from fumehood.results import RunResult
from fumehood.sandbox.async_sandbox import AsyncSandbox, OneRunSandbox, run_once
from fumehood.sandbox.audit import AuditChoice
from fumehood.sandbox.interface import SandboxOptions
from fumehood.sandbox.request import RunOptions, options_of_runs, place_in_policy

if TYPE_CHECKING:
    from fumehood.backends.interface import EnforcementReport
    from fumehood.remote.server import Server
    from fumehood.snapshots import Snapshot

P = ParamSpec("P")
Box = TypeVar("Box", bound="Sandbox")


def _blocking_open(method: Callable[P, AsyncSandbox]) -> Callable[Concatenate[type[Box], P], Box]:
    """A class method that takes and returns what this one of the async API does."""

    @wraps(cast("MethodType", method).__func__)
    def open_named(cls: type[Box], *args: P.args, **kwargs: P.kwargs) -> Box:
        target, place = method, find_server()
        if place is not None:
            _refuse_audit(kwargs.pop("audit", None), place)
            target = cast("Callable[P, AsyncSandbox]", place.open)
        return cls._driving(target(*args, **kwargs))  # pyright: ignore[reportPrivateUsage]  # of this module

    return open_named


class Sandbox:
    """`with Sandbox(policy) as box`: every method blocks and otherwise is that of `AsyncSandbox`.

    It is at a server if FUMEHOOD_SERVER or `hood login` names one, or `server` is given; then `policy` may be a name of
    its catalogue.
    """

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
        server: Server | None = None,
    ) -> None:
        options = SandboxOptions(
            packages=packages,
            session=session,
            progress=progress,
            learn=learn,
            gated=gated,
            keep_tmp=keep_tmp,
            snapshot=snapshot,
        )
        self._drive(_make_target(server or find_server(), policy, audit, options))

    @classmethod
    def _driving(cls, target: AsyncSandbox) -> Self:
        return cls.__new__(cls)._drive(target)

    def _drive(self, target: AsyncSandbox) -> Self:
        self.target = target
        self._loop: SharedLoop | None = None
        self._process = process_key()
        return self

    open = classmethod(_blocking_open(AsyncSandbox.open))

    def __repr__(self) -> str:
        return repr(self.target).removeprefix("Async")

    def __enter__(self) -> Self:
        if self._loop is not None:
            raise UsageError("this sandbox is open already; make another Sandbox for a second place")
        loop = shared_loop()
        try:
            loop.call(self.target.__aenter__)
        except BaseException:
            if self.target.is_open:  # this thread was interrupted as it opened
                loop.call(partial(self.target.__aexit__, None, None, None))
            raise
        self._loop, self._process = loop, process_key()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        loop, self._loop = self._loop, None
        # In a forked child there is nothing to close: the loop's thread, and with it the sandbox, is the parent's.
        if loop is not None and process_key() == self._process:
            loop.call(partial(self.target.__aexit__, kind, error, traceback))

    @property
    def loop(self) -> SharedLoop:
        if self._loop is None:
            raise UsageError("the sandbox is not open; use it inside `with Sandbox(policy) as box:`")
        return self._loop

    @property
    def is_open(self) -> bool:
        return self._loop is not None

    @property
    def files(self) -> Files:
        return Files(self.loop, self.target.files)

    @property
    def policy(self) -> Policy:
        return self.target.policy

    @property
    def trail(self) -> Trail:
        return self.target.trail

    @property
    def enforcement(self) -> Mapping[str, str]:
        return self.target.enforcement

    @property
    def enforcement_report(self) -> EnforcementReport:
        return self.target.enforcement_report

    run = blocking(AsyncSandbox.run)
    stream = blocking_iterator(AsyncSandbox.stream)
    send_signal = blocking(AsyncSandbox.send_signal)
    install = blocking(AsyncSandbox.install)
    change_policy = blocking(AsyncSandbox.change_policy)
    snapshot = blocking(AsyncSandbox.snapshot)
    save = blocking(AsyncSandbox.save)

    def fork(self, count: int = 1) -> list[Sandbox]:
        """Sandboxes with the same policy that begin with this workspace, each to be opened like this one.

        On disk they share all of it; each gets a workspace of its own when it opens.
        """
        return [Sandbox._driving(box) for box in self.loop.call(partial(self.target.fork, count))]

    @wraps(AsyncSandbox.session)
    def session(self) -> Session:
        return Session(self.loop, self.target.session())

    @wraps(AsyncSandbox.watch)
    def watch(
        self, path: str | os.PathLike[str] = "", *, recursive: bool = True, timeout: Seconds | None = None
    ) -> Watch:
        watch = self.target.watch(path, recursive=recursive, timeout=timeout)
        self.loop.call(watch.begin)
        return Watch(self.loop, watch)

    start = blocking_part(AsyncSandbox.start, BackgroundRun)
    expose = blocking_part(AsyncSandbox.expose, ExposedPort)


@options_of_runs()
def run(
    code: str | bytes | None = None,
    policy: AnyPolicy | None = None,
    *,
    packages: Sequence[str] = (),
    **options: Unpack[RunOptions],
) -> RunResult:
    """Run code in a fresh sandbox and wait for it. Without a policy everything is denied.

    A program that fails is a result with its exit code; `result.check()` raises instead.

        policy    a Policy, a mapping of its keys, or the path of a policy file
        packages  Python packages, such as ["pandas"], besides the policy's
        argv      a command instead of code, such as ["ls", "-l"]
        language  python, sh, bash, javascript, c, c++, rust, go or java
        args      what the program finds in sys.argv, or $1, $2 and so on
        name      the script's file name, as tracebacks and compilers show it
        stdin     text, bytes, or the number of a descriptor to read from
        env       variables for the program, which gets none of the caller's
        cwd       where it starts: relative to the workspace, or absolute
        timeout   seconds, or text such as "500ms"; shortens the policy's limit
    """
    if place := find_server():
        return shared_loop().call(partial(place.run, code, policy, packages=packages, **options))
    return shared_loop().call(partial(run_once, OneRunSandbox(policy, packages=packages), code, options))


def _make_target(
    server: Server | None, policy: AnyPolicy | None, audit: AuditChoice, options: SandboxOptions
) -> AsyncSandbox:
    """A sandbox here, or one at a server, which has the same methods."""
    if server is None:
        return AsyncSandbox(policy, audit=audit, **options)
    _refuse_audit(audit, server)
    return cast("AsyncSandbox", server.sandbox(policy, **options))


def _refuse_audit(audit: object, server: Server) -> None:
    if audit is not None:
        raise UsageError(f"what a sandbox at {server.url} does is recorded there; leave `audit` out")
