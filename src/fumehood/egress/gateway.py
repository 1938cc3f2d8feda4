"""The gateway of a process: one thread with one event loop, for all sandboxes that have rules.

If the thread dies, every socket it held is closed, and nothing accepts, answers or forwards any more.
"""

from __future__ import annotations

import asyncio
import resource
import ssl
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Protocol, TypeVarTuple, Unpack

from fumehood.concurrency.portal import LoopThread
from fumehood.egress.connections import GatewayConnections
from fumehood.egress.dial import HostResolver, Resolver, bundle, host_context
from fumehood.egress.limits import GatewayLimits, GatewayMemory
from fumehood.egress.relay import RelayBuffer
from fumehood.egress.sandbox_egress import SandboxEgress
from fumehood.errors import StepFailedError
from fumehood.policy import Policy
from fumehood.tenant import LOCAL, Tenant

WAIT_SECONDS = 10.0
_FEWEST_CONNECTIONS = 16
SWEEP_SECONDS = 5.0
_Arguments = TypeVarTuple("_Arguments")


class Cuttable(Protocol):
    def cut(self) -> None:
        """In the gateway's thread: end everything at once, and wait for nothing."""
        ...


class Gateway:
    """Started with the first sandbox that is admitted. `resolver` and `trust` are the host's own unless given."""

    def __init__(
        self,
        *,
        resolver: Resolver | None = None,
        trust: Callable[[], ssl.SSLContext] = host_context,
        limits: GatewayLimits | None = None,
    ) -> None:
        self.limits = limits or GatewayLimits()
        self.resolve = resolver or HostResolver()
        self.buffer = RelayBuffer()
        self.memory = GatewayMemory(self.limits.gateway_memory_bytes)
        self.sandboxes: set[SandboxEgress] = set()
        self.ports: set[Cuttable] = set()
        """Published ports, which live in this thread too."""
        # Two descriptors each: half of what this process may have is left to the application.
        most = max(_FEWEST_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)
        self.connections = GatewayConnections(most)
        self._trust = trust
        self._context: ssl.SSLContext | None = None
        self._roots: bytes | None = None
        self._thread: LoopThread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._care: Future[None] | None = None
        self._starting = threading.Lock()

    def admit(self, policy: Policy, sandbox_id: str, *, learn: bool = False, tenant: Tenant = LOCAL) -> SandboxEgress:
        """Egress for one sandbox, by the rules of its policy. A secret without a value is an error now."""
        sandbox = SandboxEgress(self, policy, sandbox_id, tenant, learns=learn)
        self.start()
        self.call(self._enter, sandbox)
        return sandbox

    def _enter(self, sandbox: SandboxEgress) -> None:
        self.sandboxes.add(sandbox)
        self.connections.sandboxes.add(sandbox.connections)

    def forget(self, sandbox: SandboxEgress) -> None:
        """In the gateway's thread: a sandbox that is closed."""
        self.sandboxes.discard(sandbox)
        self.connections.sandboxes.discard(sandbox.connections)

    def close(self) -> None:
        """End the thread, and with it all that goes through it."""
        with self._starting:
            thread, self._thread, self._loop = self._thread, None, None
        if thread is not None and self._care is not None:
            self._care.cancel()
            thread.__exit__(None, None, None)

    def call(self, function: Callable[[Unpack[_Arguments]], object], *arguments: *_Arguments) -> None:
        """Have something done in the gateway's thread, after all that was asked for before."""
        try:
            self._running().call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            raise _gone() from None

    def wait(
        self, function: Callable[[Unpack[_Arguments]], Coroutine[None, None, None]], *arguments: *_Arguments
    ) -> None:
        """Have something done in the gateway's thread, and wait until it is."""
        coroutine = function(*arguments)
        try:
            done = asyncio.run_coroutine_threadsafe(coroutine, self._running())
        except (RuntimeError, StepFailedError):
            coroutine.close()
            raise _gone() from None
        try:
            done.result(WAIT_SECONDS)
        except TimeoutError:
            raise StepFailedError("the egress gateway", "its thread does not answer") from None
        except CancelledError:
            raise _gone() from None

    def upstream_context(self) -> ssl.SSLContext:
        """How servers are verified; made when it is first needed, because reading all roots takes a while."""
        if self._context is None:
            self._context = self._trust()
        return self._context

    def host_roots(self) -> bytes:
        """What the host trusts, as PEM."""
        if self._roots is None:
            self._roots = bundle(self.upstream_context())
        return self._roots

    def start(self) -> None:
        """The thread, unless it runs already."""
        with self._starting:
            if self._thread is not None:
                return
            self._thread = LoopThread().__enter__()
            self._loop = self._thread.portal.call(asyncio.get_running_loop)
            self._care = self._thread.portal.start_task_soon(self._look_after)

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise _gone()
        return self._loop

    async def _look_after(self) -> None:
        """End what is idle; and when this thread ends, for whatever reason, everything."""
        try:
            while True:
                await asyncio.sleep(SWEEP_SECONDS)
                for sandbox in list(self.sandboxes):
                    sandbox.connections.end_idle()
        finally:
            for part in [*self.sandboxes, *self.ports]:
                part.cut()


def _gone() -> StepFailedError:
    return StepFailedError("the egress gateway", "its thread has ended, and the way out with it")
