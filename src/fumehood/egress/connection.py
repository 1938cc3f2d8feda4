"""One connection from inside a sandbox, from its acceptance to its end, whatever is spoken on it.

Owns both sockets, the place in the quotas and the way it ends: whatever goes wrong with one connection, it is this one
that is closed, and nothing is left of it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import Awaitable, Callable

from fumehood.egress.dial import Dialer
from fumehood.egress.http1 import MalformedMessageError
from fumehood.egress.limits import GatewayLimits, MemoryUsedUpError, QuotaLease, SandboxMemory
from fumehood.egress.log import EgressDeniedError, EgressLog, UnreachableError
from fumehood.egress.relay import Relay, RelayBuffer
from fumehood.egress.rules import RunRules
from fumehood.egress.streams import PlainStream, reset, silence
from fumehood.policy.decision import Decision, deny
from fumehood.policy.egress import Attempt, Route
from fumehood.secret_scan.canaries import CanaryWatch

_log = logging.getLogger(__name__)
Destination = tuple[str, int]
Service = Callable[["Connection", Destination], Awaitable[None]]
Announce = Callable[[], Awaitable[None]]
"""Tells a proxy's client that its way is open."""


async def no_announcement() -> None:
    """For clients without a proxy, whose connection is open already."""


class Connection:
    """Lives in the gateway's thread. Without a `dialer` it reaches no server, whatever the rules say."""

    def __init__(
        self,
        near: socket.socket,
        *,
        rules: RunRules,
        log: EgressLog,
        limits: GatewayLimits,
        dialer: Dialer | None,
        memory: SandboxMemory,
        buffer: RelayBuffer,
        on_end: Callable[[Connection], None],
    ) -> None:
        self.rules, self.log, self.limits = rules, log, limits
        self._dialer, self._memory, self._buffer, self._on_end = dialer, memory, buffer, on_end
        self.near = PlainStream(near, self._touch, memory)
        self.route: Route | None = None
        self._far: socket.socket | None = None
        self._far_stream: PlainStream | None = None
        self._lease: QuotaLease | None = None
        self._relay: Relay | None = None
        self._watch: CanaryWatch | None = None
        self._touched = time.monotonic()
        self.is_ending = False
        """It was given up, and counts until it is closed."""
        self._task: asyncio.Task[None] | None = None

    def start(self, service: Service, destination: Destination) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(service, destination))

    @property
    def sockets(self) -> list[socket.socket]:
        return [self.near.connection] if self._far is None else [self.near.connection, self._far]

    @property
    def idle_seconds(self) -> float:
        return time.monotonic() - self._touched

    def judge_address(self, destination: Destination) -> Route:
        """The route of a program that connected to this address and port; raises what the rules have against it."""
        self.route = self.rules.judge_address(*destination)
        return self.route

    def judge(self, host: str, port: int) -> Route:
        """The route to a host and port that a proxy's client named; raises what the rules have against it."""
        self.route = self.rules.judge(host, port, looked_up=False)
        return self.route

    def inspect(self, data: bytes) -> None:
        """What is about to leave, before it does; raises if a canary is in it."""
        if self.rules.has_canaries and self.route is not None:
            self._watch = self._watch or self.rules.watch(self.route)
            self.rules.check_outflow(self._watch, data, self.route)

    async def reach(self, route: Route) -> PlainStream:
        """A connection to the server of a route, in place of the one before, if any."""
        self.leave()
        attempt = Attempt("connect", route.host, route.port)
        if self._dialer is None:
            raise EgressDeniedError(deny(attempt, "it is only learned from"))
        self._lease = self._dialer.enter(route)
        self._far = await self._dialer.dial(route, self.log)
        self._far_stream = PlainStream(self._far, self._count, self._memory)
        return self._far_stream

    def hand_over(self) -> None:
        """All further bytes move unseen; this connection now lives without a task."""
        if self._far is None or self._lease is None:
            raise AssertionError("nothing to hand over to")
        self._release()
        self._relay = Relay(
            self.near.connection,
            self._far,
            self._buffer,
            self._memory,
            allowance=self._lease.allowance,
            count=self._count,
            on_end=self._on_relay_end,
        )
        self._relay.start()

    def refuse(self, decision: Decision[Attempt]) -> None:
        self.log.record(decision)

    def leave(self) -> None:
        """Give up the server, keep the client."""
        if self._lease is not None:
            self._lease.leave()
            self._lease = None
        if self._far is not None:
            reset(self._far)
            self._far = None
        if self._far_stream is not None:
            self._far_stream.release()
            self._far_stream = None

    def hang_up(self) -> None:
        """Closes the connection to the server; a task that reads from it sees the end."""
        if self._far is not None:
            silence(self._far)

    def abort(self) -> None:
        """End at once, wherever it stands."""
        if self._relay is not None:
            self._relay.finish(ConnectionAbortedError())
        elif self._task is not None and not self._task.done():
            # Nothing moves from here on; closing waits for the task, which may still have the sockets in its hands.
            for connection in self.sockets:
                silence(connection)
            self._task.cancel()

    def give_up(self, why: str) -> None:
        """End at once, and say why."""
        self.is_ending = True
        self.refuse(deny(self._attempt, why))
        self.abort()

    @property
    def _attempt(self) -> Attempt:
        host, port = ("?", 0) if self.route is None else (self.route.host, self.route.port)
        return Attempt("connect", host, port)

    async def wait(self) -> None:
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self, service: Service, destination: Destination) -> None:
        try:
            await service(self, destination)
        except EgressDeniedError as error:
            self.refuse(error.decision)
            self._end(abruptly=True)
        except MemoryUsedUpError as error:
            self.refuse(deny(self._attempt, str(error)))
            self._end(abruptly=True)
        except (OSError, UnreachableError, TimeoutError, MalformedMessageError, ssl.SSLError):
            self._end(abruptly=True)
        except asyncio.CancelledError:
            self._end(abruptly=True)
            raise
        except Exception as error:
            # The text of a stranger's exception could hold anything, a credential too.
            _log.error("a connection was closed: unexpected %s in %s", type(error).__name__, service.__qualname__)
            self._end(abruptly=True)
        else:
            if self._relay is None:
                self._end()

    def _on_relay_end(self, error: Exception | None) -> None:
        if isinstance(error, EgressDeniedError):
            self.refuse(error.decision)
        self._end(abruptly=error is not None)

    def _end(self, *, abruptly: bool = False) -> None:
        if self._far is not None and not abruptly:
            self._far.close()
            self._far = None
        self.leave()
        self.near.release()
        if abruptly:
            reset(self.near.connection)
        else:
            self.near.connection.close()
        self._on_end(self)

    def _release(self) -> None:
        self.near.release()
        if self._far_stream is not None:
            self._far_stream.release()

    def _count(self, moved: int) -> None:
        self._touch(moved)
        if self._lease is not None:
            self._lease.count(moved)

    def _touch(self, _: int) -> None:
        self._touched = time.monotonic()
