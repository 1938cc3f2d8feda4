"""The blocking API: the same methods as `AsyncSandbox`, through one generic wrapper.

Works inside a running event loop too, because all blocking sandboxes share one loop in a thread of its own.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial, wraps
from types import TracebackType
from typing import TYPE_CHECKING, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, Unpack, cast

from fumehood.audit import Trail
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
from fumehood.sandbox.background import AsyncBackgroundRun
from fumehood.sandbox.files import AsyncFiles
from fumehood.sandbox.ports import AsyncExposedPort
from fumehood.sandbox.request import RunOptions, options_of_runs, place_in_policy
from fumehood.sandbox.session import AsyncSession

if TYPE_CHECKING:
    from fumehood.remote.server import Server
    from fumehood.sandbox.files.entries import FileChange
    from fumehood.sandbox.files.watch import AsyncWatch
    from fumehood.snapshots import Snapshot

P = ParamSpec("P")
T = TypeVar("T")
Part = TypeVar("Part")
Target = TypeVar("Target")
CovariantTarget = TypeVar("CovariantTarget", covariant=True)


class _Driver(Protocol[CovariantTarget]):
    """Drives an object of the async API from outside of its event loop."""

    @property
    def loop(self) -> SharedLoop: ...

    @property
    def target(self) -> CovariantTarget: ...


def _blocking(
    method: Callable[Concatenate[Target, P], Awaitable[T]],
) -> Callable[Concatenate[_Driver[Target], P], T]:
    """By its name: a sandbox that is elsewhere has the same methods."""
    name = method.__name__

    @wraps(method)
    def call(self: _Driver[Target], *args: P.args, **kwargs: P.kwargs) -> T:
        return self.loop.call(partial(getattr(self.target, name), *args, **kwargs))

    return call


def _blocking_part(
    method: Callable[Concatenate[Target, P], Awaitable[T]], kind: Callable[[SharedLoop, T], Part]
) -> Callable[Concatenate[_Driver[Target], P], Part]:
    """A blocking method whose result is wrapped in a blocking driver too."""
    name = method.__name__

    @wraps(method)
    def call(self: _Driver[Target], *args: P.args, **kwargs: P.kwargs) -> Part:
        return kind(self.loop, self.loop.call(partial(getattr(self.target, name), *args, **kwargs)))

    return call


def _blocking_iterator(
    method: Callable[Concatenate[Target, P], AsyncGenerator[T, None]],
) -> Callable[Concatenate[_Driver[Target], P], Iterator[T]]:
    name = method.__name__

    @wraps(method)
    def iterate(self: _Driver[Target], *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return self.loop.iterate(getattr(self.target, name)(*args, **kwargs))

    return iterate


class _Part(Generic[Target]):
    """Something that belongs to a sandbox and is driven through its loop."""

    def __init__(self, loop: SharedLoop, target: Target) -> None:
        self.loop, self.target = loop, target


class BackgroundRun(_Part[AsyncBackgroundRun]):
    """An `AsyncBackgroundRun` whose methods block."""

    poll = _blocking(AsyncBackgroundRun.poll)
    read = _blocking(AsyncBackgroundRun.read)
    stream = _blocking_iterator(AsyncBackgroundRun.stream)
    wait = _blocking(AsyncBackgroundRun.wait)
    write = _blocking(AsyncBackgroundRun.write)
    close_stdin = _blocking(AsyncBackgroundRun.close_stdin)
    send_signal = _blocking(AsyncBackgroundRun.send_signal)
    resize = _blocking(AsyncBackgroundRun.resize)
    kill = _blocking(AsyncBackgroundRun.kill)


class Session(_Part[AsyncSession]):
    """An `AsyncSession` whose methods block."""

    def __enter__(self) -> Self:
        self.loop.call(self.target.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.loop.call(self.target.close)

    run = _blocking(AsyncSession.run)
    stream = _blocking_iterator(AsyncSession.stream)
    interrupt = _blocking(AsyncSession.interrupt)
    restart = _blocking(AsyncSession.restart)


class ExposedPort(_Part[AsyncExposedPort]):
    """An `AsyncExposedPort` whose methods block."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.port} at {self.address})"

    @property
    def port(self) -> int:
        return self.target.port

    @property
    def url(self) -> str:
        return self.target.url

    @property
    def address(self) -> str:
        return self.target.address

    @property
    def headers(self) -> Mapping[str, str]:
        return self.target.headers

    @property
    def is_open(self) -> bool:
        return self.target.is_open

    wait_ready = _blocking(AsyncExposedPort.wait_ready)
    close = _blocking(AsyncExposedPort.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.loop.call(self.target.close)


class Files(_Part[AsyncFiles]):
    """An `AsyncFiles` whose methods block."""

    write = _blocking(AsyncFiles.write)
    read = _blocking(AsyncFiles.read)
    list = _blocking(AsyncFiles.list)
    outputs = _blocking(AsyncFiles.outputs)
    stat = _blocking(AsyncFiles.stat)
    remove = _blocking(AsyncFiles.remove)
    rename = _blocking(AsyncFiles.rename)
    mkdir = _blocking(AsyncFiles.mkdir)
    upload = _blocking(AsyncFiles.upload)
    download = _blocking(AsyncFiles.download)


class Watch:
    """An `AsyncWatch` that is an iterator; changes count from its making."""

    def __init__(self, loop: SharedLoop, target: AsyncWatch) -> None:
        self.loop, self.target = loop, target

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> FileChange:
        change = self.loop.call(self.target.next)
        if change is None:
            raise StopIteration
        return change

    def close(self) -> None:
        self.loop.call(self.target.close)


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
        place = server or find_server()
        if place is None:
            target = AsyncSandbox(
                policy,
                packages=packages,
                session=session,
                progress=progress,
                learn=learn,
                audit=audit,
                gated=gated,
                keep_tmp=keep_tmp,
                snapshot=snapshot,
            )
        else:
            _refuse_audit(audit, place)
            target = place.sandbox(
                policy,
                packages=packages,
                session=session,
                progress=progress,
                learn=learn,
                gated=gated,
                keep_tmp=keep_tmp,
                snapshot=snapshot,
            )
        self._drive(cast("AsyncSandbox", target))

    def _drive(self, target: AsyncSandbox) -> Self:
        self.target = target
        self._loop: SharedLoop | None = None
        self._process = process_key()
        return self

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
        if place := find_server():
            _refuse_audit(audit, place)
            remote = place.open(
                name,
                policy,
                once=once,
                create=create,
                wait=wait,
                session=session,
                progress=progress,
                gated=gated,
                keep_tmp=keep_tmp,
            )
            return cls.__new__(cls)._drive(cast("AsyncSandbox", remote))
        target = AsyncSandbox.open(
            name,
            policy,
            once=once,
            create=create,
            wait=wait,
            session=session,
            progress=progress,
            audit=audit,
            gated=gated,
            keep_tmp=keep_tmp,
        )
        return cls.__new__(cls)._drive(target)

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

    run = _blocking(AsyncSandbox.run)
    stream = _blocking_iterator(AsyncSandbox.stream)
    send_signal = _blocking(AsyncSandbox.send_signal)
    install = _blocking(AsyncSandbox.install)
    change_policy = _blocking(AsyncSandbox.change_policy)
    snapshot = _blocking(AsyncSandbox.snapshot)
    save = _blocking(AsyncSandbox.save)

    def fork(self, count: int = 1) -> list[Sandbox]:
        """Sandboxes with the same policy that begin with this workspace, each to be opened like this one.

        On disk they share all of it; each gets a workspace of its own when it opens.
        """
        return [Sandbox.__new__(Sandbox)._drive(box) for box in self.loop.call(partial(self.target.fork, count))]

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

    start = _blocking_part(AsyncSandbox.start, BackgroundRun)
    expose = _blocking_part(AsyncSandbox.expose, ExposedPort)


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


def _refuse_audit(audit: AuditChoice, server: Server) -> None:
    if audit is not None:
        raise UsageError(f"what a sandbox at {server.url} does is recorded there; leave `audit` out")
