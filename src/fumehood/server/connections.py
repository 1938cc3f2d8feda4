"""Connections of clients: HTTP/1.1 and WebSockets as uvicorn has them, with bounds on time, number and memory.

No key is known when a connection is made, so any client that reaches the server can make many. One that waits for a
request costs a descriptor: where there are too many, the one that has waited longest is closed, and clients with
something to ask go on. What a tenant can hold open with its keys is bounded by `TenantConnections`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from fumehood.egress.limits import TokenBucket
from fumehood.errors import FumehoodError, QuotaError
from fumehood.policy import format_size

_READ_BYTES = 64 * 1024
_MOST_UNREAD_BYTES = 1024 * 1024
_PINGS_AT_ONCE, _PINGS_PER_SECOND = 20, 2
_SMALL_BYTES = 16 * 1024
_FULL = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 5\r\nConnection: close\r\n\r\n"


class ConnectionLimit:
    """How many connections a listener may have at once, and those of them that wait for a request, oldest first."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._waiting: dict[TimedProtocol, None] = {}

    def begin_waiting(self, connection: TimedProtocol) -> None:
        self._waiting[connection] = None

    def end_waiting(self, connection: TimedProtocol) -> None:
        self._waiting.pop(connection, None)

    def make_room(self) -> None:
        """Closes the one that has waited longest. Without one that waits, the newest gets an answer that says so."""
        oldest = next(iter(self._waiting), None)
        if oldest is not None:
            self.end_waiting(oldest)
            oldest.transport.abort()
            # The loop tells it of its end a turn later; many can be made in one turn, and others ask meanwhile.
            oldest.connections.discard(oldest)


class TimedProtocol(H11Protocol):
    """HTTP/1.1 whose clients have a deadline for the headers of each request: uvicorn itself waits for ever."""

    headers_seconds = 10.0
    limit = ConnectionLimit(2048)

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._deadline: asyncio.TimerHandle | None = None
        self._unread_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # asyncio reads as much as this before it turns to other connections.
        transport.max_size = _READ_BYTES  # pyright: ignore[reportAttributeAccessIssue]
        self._expect_headers()
        if len(self.connections) > self.limit.most:
            self.limit.make_room()

    def data_received(self, data: bytes) -> None:
        if self._is_unread():
            self._unread_bytes += len(data)
            if self._unread_bytes > _MOST_UNREAD_BYTES:
                self.transport.abort()
                return
        super().data_received(data)
        if not self._is_waiting():
            self._forget_deadline()
        elif self._deadline is None:
            self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_deadline()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._is_waiting() and not self.transport.is_closing():
            self.limit.begin_waiting(self)  # its deadline is uvicorn's, until it sends something

    def handle_websocket_upgrade(self, event: Any) -> None:
        self._forget_deadline()
        if len(self.connections) > self.limit.most:
            self.transport.write(_FULL)
            self.transport.close()
            return
        super().handle_websocket_upgrade(event)

    def _is_unread(self) -> bool:
        """Whether the client still sends a body that has its answer: uvicorn would read it to an end that it may not
        have, and a connection that ends at once would take the answer with it."""
        cycle: Any = self.cycle
        return cycle is not None and cycle.response_complete and self.conn.their_state is h11.SEND_BODY

    def _is_waiting(self) -> bool:
        """Whether no request is under way."""
        cycle: Any = self.cycle
        return not self._is_upgraded() and (cycle is None or cycle.response_complete)

    def _is_upgraded(self) -> bool:
        return self.transport.get_protocol() is not self

    def _expect_headers(self) -> None:
        self.limit.begin_waiting(self)
        self._deadline = self.loop.call_later(self.headers_seconds, self._close_slow)

    def _forget_deadline(self) -> None:
        self.limit.end_waiting(self)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _close_slow(self) -> None:
        self._deadline = None
        if self._is_waiting():
            self.limit.end_waiting(self)
            self.transport.close()


class BoundedWebSocket(WebSocketsSansIOProtocol):
    """A WebSocket whose client cannot fill the memory or keep the processor, before it is let in or with pings."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._pings = TokenBucket(_PINGS_AT_ONCE, _PINGS_PER_SECOND)

    def handle_connect(self, event: Any) -> None:
        """What a client sends before it is let in is not read; the first `receive` of the application goes on."""
        super().handle_connect(event)
        if not self.transport.is_closing():
            self.read_paused = True
            self.transport.pause_reading()

    def send_receive_event_to_app(self) -> None:
        """One small message may wait while more is read: to stop reading for each, and to go on when it is taken, takes
        longer than most of them. uvicorn stops for every message, unless reading is stopped already.
        """
        is_alone = not self.read_paused and self.queue.empty() and sum(map(len, self.frames)) <= _SMALL_BYTES
        self.read_paused |= is_alone
        super().send_receive_event_to_app()
        if is_alone:
            self.read_paused = False

    def handle_ping(self) -> None:
        """Answers of a client that does not read them would wait here, and one that sends too many is cut off."""
        if not self._pings.take():
            self.transport.abort()
        elif self.writable.is_set():
            super().handle_ping()
        else:
            self.conn.data_to_send()


class TooManyConnectionsError(FumehoodError):
    """A tenant has as many requests and channels open as it may have."""

    def __init__(self, most: int) -> None:
        super().__init__(f"the tenant has {most} requests and channels open at this server, and may not have more")


class TooMuchHeldError(FumehoodError):
    """The bodies of a tenant's requests that are under way have as many bytes together as they may have."""

    def __init__(self) -> None:
        super().__init__("the tenant has too many large requests under way; send them one after another")


class TenantConnections:
    """What a tenant may have open at once, requests and channels, and hold in memory: not all that there is."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most, self.most_bytes = most, most_bytes
        self._open: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()

    @contextmanager
    def one_more(self, tenant: str) -> Iterator[Callable[[int], None]]:
        """For the block; TooManyConnectionsError if there are too many. What it gives counts bytes that are held."""
        if self._open[tenant] >= self._most:
            raise TooManyConnectionsError(self._most)
        held = 0

        def hold(size: int) -> None:
            nonlocal held
            if not self.take_bytes(tenant, size):
                raise TooMuchHeldError
            held += size

        self._open[tenant] += 1
        try:
            yield hold
        finally:
            self._open[tenant] -= 1
            self._bytes[tenant] -= held
            self._forget(tenant)

    def memory_of(self, tenant: str) -> TenantMemory:
        """For messages of the tenant's channels, which count together with bodies."""
        return TenantMemory(self, tenant)

    def take_bytes(self, tenant: str, size: int) -> bool:
        if self._bytes[tenant] + size > self.most_bytes:
            return False
        self._bytes[tenant] += size
        return True

    def give_bytes(self, tenant: str, size: int) -> None:
        self._bytes[tenant] -= size
        self._forget(tenant)

    def _forget(self, tenant: str) -> None:
        """One that has nothing open and holds nothing."""
        for counts in (self._open, self._bytes):
            if not counts[tenant]:
                del counts[tenant]


class TenantMemory:
    """The account of one tenant's channels; all sandboxes of the tenant share it."""

    def __init__(self, connections: TenantConnections, tenant: str) -> None:
        self._connections, self._tenant = connections, tenant

    def take(self, size: int) -> QuotaError | None:
        if self._connections.take_bytes(self._tenant, size):
            return None
        most = self._connections.most_bytes
        return QuotaError(
            f"the tenant has messages and bodies of {format_size(most)} under way at this server, and may not have "
            "more; send large ones one after another, or as files",
            quota="bodies_of_tenant",
            most=most,
            used=most,
            resets=None,
        )

    def give(self, size: int) -> None:
        self._connections.give_bytes(self._tenant, size)
