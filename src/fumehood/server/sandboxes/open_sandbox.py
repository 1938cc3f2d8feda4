"""One sandbox that is open for a tenant: its service, the carrier in use, and its times.

A client that had a connection to it and lost that may come back within `linger` and goes on where it was. After `idle`
without a call, and at its `expires`, it is closed whatever happens in it.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Protocol

from fumehood.policy import Policy
from fumehood.remote.carrier import MessageCarrier
from fumehood.remote.current_carrier import CurrentCarrier
from fumehood.remote.memory import MemoryAccount
from fumehood.remote.service import SandboxService
from fumehood.server.identity.principals import ForbiddenError, Principal, Scope
from fumehood.server.sandboxes.access_tokens import AccessTokens
from fumehood.server.sandboxes.errors import SandboxClosedError
from fumehood.server.sandboxes.opening import Opening
from fumehood.server.sandboxes.placement import PlacedSandbox
from fumehood.server.sandboxes.sent_mounts import mounted_from

_ALWAYS = frozenset({"close", "port.close", "session.close", "background.kill"})
"""Calls that end something: they are not counted, so that a tenant at its quota can still do so."""
_KEPT = frozenset({"idle", "expired", "drained"})
_LAST_ANSWERS_SECONDS, _PAUSE_SECONDS = 2.0, 0.01


class OwningRegistry(Protocol):
    """What an open sandbox asks of the registry that it is in."""

    def memory_of(self, tenant: str, /) -> MemoryAccount: ...

    async def admit_call(self, principal: Principal) -> None: ...

    async def fork(self, opened: OpenSandbox, count: int) -> list[str]: ...

    async def change_policy(self, opened: OpenSandbox, wanted: object) -> None: ...

    async def forget(self, opened: OpenSandbox, cause: str) -> None:
        """Once, with the cause, when nothing of it is left."""
        ...


class ClientFailedError(Exception):
    """The block of the client's that had the sandbox was left with an error."""


class OpenSandbox:
    """`registry` is told once when it has ended."""

    def __init__(
        self,
        identifier: str,
        principal: Principal,
        token: str,
        box: PlacedSandbox,
        opening: Opening,
        registry: OwningRegistry,
    ) -> None:
        self.id, self.principal, self.box = identifier, principal, box
        self.opening, self.times = opening, opening.times
        self.tokens, self._registry = AccessTokens(principal.name, token), registry
        self.service = SandboxService(box, self, account=registry.memory_of(principal.tenant))
        link = self.service.conversations.link
        self._carrier = CurrentCarrier(link, time.monotonic, check_open=self._check_open, close=self.close)
        self._last_use = time.monotonic()
        self._uses = 0
        self._cause: str | None = None
        self._closed = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        """When it may be overdue, once it is open. A timer costs less than a task that waits."""
        self._end_of_time: asyncio.Task[None] | None = None
        self.extend(self.times.lifetime)

    async def open(self) -> None:
        await self.box.__aenter__()
        self._set_timer()

    async def admit_call(self, call: str) -> None:
        """What the key that opened it does not let its holder do by HTTP is not done by the channel, either."""
        if call == "files" and not self.principal.may(Scope.FILES):
            raise ForbiddenError(Scope.FILES)
        if call not in _ALWAYS:
            await self._registry.admit_call(self.principal)

    async def fork(self, count: int) -> list[str]:
        return await self._registry.fork(self, count)

    async def change_policy(self, wanted: object) -> None:
        await self._registry.change_policy(self, wanted)

    @property
    def shown_policy(self) -> Policy:
        """As its client knows it: mounts of what was sent along have the client's names for it."""
        if not self.opening.mounts:
            return self.box.policy
        sources = {each.target: each.source for each in self.opening.policy.filesystem.mounts}
        return mounted_from(self.box.policy, sources)

    @property
    def tenant(self) -> str:
        return self.principal.tenant

    @property
    def is_closed(self) -> bool:
        return self._cause is not None

    @property
    def received(self) -> int:
        """What the server has of the client's messages, for a client that comes back."""
        return self.service.conversations.link.received

    def begin_use(self) -> None:
        """A call from elsewhere than the client's own connection; it is not idle until `end_use`."""
        self._check_open()
        self._uses += 1

    def _check_open(self) -> None:
        if self._cause is not None:
            raise SandboxClosedError

    def end_use(self) -> None:
        self._uses -= 1
        self._last_use = time.monotonic()

    def extend(self, lifetime: float) -> None:
        """From now on. A clock that is set afterwards changes what it says, and not when the sandbox ends."""
        self.expires = time.time() + lifetime
        self._deadline = time.monotonic() + lifetime
        if self._timer is not None:
            self._set_timer()

    async def serve(self, carrier: MessageCarrier, received_by_client: int) -> None:
        """Until the carrier is lost, or another one takes its place."""
        try:
            await self._carrier.serve(carrier, received_by_client)
        finally:
            if self._timer is not None:
                self._set_timer()

    async def close_for_client(self, is_failing: bool) -> None:
        """The client's own wish, in a call of its own: the answer to it is the last thing that the link carries."""
        if self._begin_closing("closed"):
            error = ClientFailedError() if is_failing else None
            await self._close_box(error)

    async def close(self, cause: str) -> None:
        """The first cause counts; returns when it is closed, whoever did it."""
        if not self._begin_closing(cause):
            await self._closed.wait()
            return
        await self.service.close()
        await self._carrier.hang_up()
        await self._close_box(None if self._ends_well(cause) else ClientFailedError(cause))

    def _ends_well(self, cause: str) -> bool:
        """Whether a named sandbox keeps what is in it. A client that is gone was perhaps in the middle of it."""
        return cause == "closed" or (self.opening.named is not None and cause in _KEPT)

    async def end_lost(self) -> None:
        """Its host is lost: calls under way are answered with that, and then it ends."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_ANSWERS_SECONDS):
                while self._uses or self.service.is_busy:  # noqa: ASYNC110 - two counters, of which neither has an event
                    await asyncio.sleep(_PAUSE_SECONDS)
        await self.close("lost")

    def _begin_closing(self, cause: str) -> bool:
        if self._cause is not None:
            return False
        self._cause = cause
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return True

    async def _close_box(self, error: BaseException | None) -> None:
        """Whole, whoever is cancelled meanwhile."""
        await asyncio.shield(self._leave(error))

    async def _leave(self, error: BaseException | None) -> None:
        try:
            await self.box.__aexit__(type(error) if error else None, error, None)
        finally:
            try:
                await self._registry.forget(self, self._cause or "closed")
            finally:
                self._closed.set()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(self._seconds_left(), self._check_times)

    def _check_times(self) -> None:
        if (cause := self._overdue()) is None:
            self._set_timer()
        else:
            self._end_of_time = asyncio.ensure_future(self.close(cause))

    def _overdue(self) -> str | None:
        if time.monotonic() >= self._deadline:
            return "expired"
        lost_at = self._carrier.lost_at
        if lost_at is not None and time.monotonic() >= lost_at + self.times.linger:
            return "abandoned"
        return "idle" if self._idle_seconds() >= self.times.idle else None

    def _idle_seconds(self) -> float:
        if self._uses or self.service.is_busy:
            return 0
        return time.monotonic() - max(self._last_use, self.service.last_call)

    def _seconds_left(self) -> float:
        """Until it may be overdue."""
        left = [self._deadline - time.monotonic(), max(self.times.idle - self._idle_seconds(), 0.01)]
        if self._carrier.lost_at is not None:
            left.append(self._carrier.lost_at + self.times.linger - time.monotonic())
        return max(min(left), 0)
