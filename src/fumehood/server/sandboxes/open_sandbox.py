"""One sandbox that is open for a tenant: its service, the carrier in use, and its times.

It outlives a connection by `linger`: a client that comes back in that time goes on where it was. After `idle` without
a call, and at its `expires`, it is closed whatever happens in it.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from fumehood.errors import UsageError
from fumehood.frozen import frozen
from fumehood.guest.contract.frames import FrameError
from fumehood.remote.carrier import Carrier
from fumehood.remote.service import SandboxService
from fumehood.sandbox.async_sandbox import AsyncSandbox

_PROTOCOL_BROKEN = "protocol"


@frozen
class Times:
    """In seconds."""

    lifetime: float = 3600
    idle: float = 600
    linger: float = 30


class OpenSandbox:
    """`ended` is called once, with the cause, when nothing of it is left."""

    def __init__(
        self,
        identifier: str,
        tenant: str,
        token: str,
        box: AsyncSandbox,
        times: Times,
        ended: Callable[[OpenSandbox, str], Awaitable[None]],
    ) -> None:
        self.id, self.tenant, self.box, self.times = identifier, tenant, box, times
        self._token, self._ended = token, ended
        self.service = SandboxService(box)
        self.expires = time.time() + times.lifetime
        self._stack = AsyncExitStack()
        self._carrier: asyncio.Task[None] | None = None
        self._used = asyncio.Event()
        self._cause: str | None = None
        self._uses = 0
        self._watch: asyncio.Task[None] | None = None

    async def open(self) -> None:
        await self._stack.enter_async_context(self.box)
        self._watch = asyncio.ensure_future(self._watch_times())

    def is_token(self, token: str) -> bool:
        return hmac.compare_digest(self._token.encode(), token.encode())

    def begin_use(self) -> None:
        """A call from elsewhere than the client's own connection; it is not idle until `end_use`."""
        if self._cause is not None:
            raise UsageError("the sandbox is closed")
        self._uses += 1

    def end_use(self) -> None:
        self._uses -= 1

    def extend(self, lifetime: float) -> None:
        """From now on."""
        self.expires = time.time() + lifetime
        self._used.set()

    @property
    def received(self) -> int:
        """What the server has of the client's messages, for a client that comes back."""
        return self.service.conversations.link.received

    async def serve(self, carrier: Carrier, received_by_client: int) -> None:
        """Until the carrier is lost. A second carrier takes the place of the first: the client knows which is alive."""
        await self._hang_up()
        if self._cause is not None:
            raise UsageError("the sandbox is closed")
        task = self._carrier = asyncio.ensure_future(self.service.conversations.link.use(carrier, received_by_client))
        try:
            await task
        except FrameError:
            await self.close(_PROTOCOL_BROKEN)
            raise
        finally:
            if self._carrier is task:
                self._carrier = None
                self._used.set()

    async def _hang_up(self) -> None:
        if self._carrier is not None:
            self._carrier.cancel()
            await asyncio.gather(self._carrier, return_exceptions=True)

    async def close(self, cause: str) -> None:
        """The first cause counts."""
        if self._cause is not None:
            return
        self._cause = cause
        if self._watch is not None and self._watch is not asyncio.current_task():
            self._watch.cancel()
        await self.service.close()
        await self._hang_up()
        try:
            await self._stack.aclose()
        finally:
            await self._ended(self, cause)

    async def _watch_times(self) -> None:
        while True:
            left = self.expires - time.time()
            if left <= 0:
                break
            self._used.clear()
            patience = self.times.linger if self._carrier is None else self.times.idle
            try:
                async with asyncio.timeout(min(left, patience)):
                    await self._used.wait()
            except TimeoutError:
                if time.time() >= self.expires:
                    break
                if self._carrier is None or self.service.is_idle_for(self.times.idle):
                    await self.close("abandoned" if self._carrier is None else "idle")
                    return
        await self.close("expired")
