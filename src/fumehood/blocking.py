"""The blocking API: the same methods as `Sandbox`, through one generic wrapper. Works inside a running event loop too,
because the sandbox's own loop runs in a thread of its own.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial, wraps
from types import TracebackType
from typing import Concatenate, ParamSpec, Self, TypeVar, Unpack

from anyio.from_thread import BlockingPortal

from fumehood.errors import UsageError
from fumehood.policy import Policy
from fumehood.portal import LoopThread
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
        self._portal: BlockingPortal | None = None
        self._stack = ExitStack()
        self._process = os.getpid()

    def __enter__(self) -> Self:
        if self._portal is not None:
            raise UsageError("this sandbox is open already; make another SyncSandbox for a second place")
        with ExitStack() as stack:
            portal = stack.enter_context(LoopThread()).portal
            stack.enter_context(portal.wrap_async_context_manager(self.sandbox))
            self._portal, self._stack = portal, stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._portal = None
        if os.getpid() == self._process:
            self._stack.close()
        # In a forked child there is nothing to close: the loop's thread, and with it the sandbox, is the parent's.

    @property
    def portal(self) -> BlockingPortal:
        if self._portal is None:
            raise UsageError("the sandbox is not open; use it inside `with SyncSandbox(policy) as box:`")
        return self._portal

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
