"""The blocking API: the same methods as `Sandbox`, through one generic wrapper. Works inside a running event loop too,
because the sandbox's own loop runs in a thread of its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial, wraps
from types import TracebackType
from typing import Concatenate, ParamSpec, Self, TypeVar, Unpack

from anyio.from_thread import BlockingPortal, start_blocking_portal

from fumehood.policy import Policy
from fumehood.requests import RunOptions
from fumehood.results import RunResult
from fumehood.sandbox import Sandbox

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(method: Callable[Concatenate[Sandbox, P], Awaitable[T]]) -> Callable[Concatenate[SyncSandbox, P], T]:
    @wraps(method)
    def call(self: SyncSandbox, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.portal.call(partial(method, self.sandbox, *args, **kwargs))

    return call


def _blocking_iterator(
    method: Callable[Concatenate[Sandbox, P], AsyncIterator[T]],
) -> Callable[Concatenate[SyncSandbox, P], Iterator[T]]:
    @wraps(method)
    def iterate(self: SyncSandbox, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        iterator = method(self.sandbox, *args, **kwargs)
        try:
            while True:
                try:
                    yield self.portal.call(iterator.__anext__)
                except StopAsyncIteration:
                    return
        finally:
            close = getattr(iterator, "aclose", None)
            if close:
                self.portal.call(close)

    return iterate


class SyncSandbox:
    """`with SyncSandbox(policy) as box`: every method blocks and otherwise is that of `Sandbox`."""

    def __init__(self, policy: Policy | None = None, *, progress: Callable[[str], None] | None = None) -> None:
        self.sandbox = Sandbox(policy, progress=progress)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.portal: BlockingPortal = stack.enter_context(start_blocking_portal())
            stack.enter_context(self.portal.wrap_async_context_manager(self.sandbox))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def policy(self) -> Policy:
        return self.sandbox.policy

    @property
    def enforcement(self) -> Mapping[str, str]:
        return self.sandbox.enforcement

    run = _blocking(Sandbox.run)
    stream = _blocking_iterator(Sandbox.stream)


def run(code: str | bytes | None = None, policy: Policy | None = None, **options: Unpack[RunOptions]) -> RunResult:
    """Run code in a fresh sandbox and wait for it. Without a policy everything is denied."""
    with SyncSandbox(policy) as box:
        return box.run(code, **options)
