"""One run's use of its sandbox's way out: its listeners, its connections, and what it was refused.

`listen`, `serve`, `answer` and `end` are thread-safe; everything else lives in the gateway's thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVarTuple

from fumehood.egress import dns, learning, proxy
from fumehood.egress.connection import Connection, Destination, Service
from fumehood.egress.ledger import Ledger
from fumehood.egress.lookout import Sighting, sighting
from fumehood.egress.proxy import serve_proxy
from fumehood.egress.streams import reset, silence
from fumehood.egress.tunnel import serve_destination
from fumehood.errors import StepFailedError
from fumehood.guest.contract import wire
from fumehood.guest.contract.limits import SHOWN_BYTES
from fumehood.policy.decision import Decision, deny
from fumehood.policy.egress import AllowedAttempt, Attempt
from fumehood.results import Denial
from fumehood.secret_scan.canaries import Alarm, CanaryWatch

if TYPE_CHECKING:
    from fumehood.egress.way_out import WayOut

DNS_PORT = 53
_HERE = "127.0.0.1"
_MOST_AT_ONCE = 64
_PAUSE_SECONDS = 0.1
_Arguments = TypeVarTuple("_Arguments")


class Visit:
    def __init__(self, way: WayOut, run_id: str) -> None:
        self.way, self.run_id = way, run_id
        self.ledger = Ledger(denials=way.limits.denials, passages=way.limits.passages)
        self._connections: set[Connection] = set()
        self._sockets: set[socket.socket] = set()
        self._ended = False

    def listen(self, sockets: Sequence[socket.socket]) -> None:
        """Accept what arrives at TCP listeners and UDP sockets that were made inside. They belong to the visit now."""
        self._hand_over(sockets, self._listen, sockets)

    def attend(self, door: socket.socket) -> None:
        """Take the listeners that arrive here from inside, at any time until the run is over."""
        self._hand_over([door], self._watch, door, self._take_listeners)

    def serve(self, connection: socket.socket, destination: Destination) -> None:
        """Take one connection that a program made to an address and port inside; without a gateway it just ends."""
        with contextlib.suppress(StepFailedError):
            self._hand_over([connection], self._admit, connection, destination)

    def _hand_over(
        self, given: Sequence[socket.socket], work: Callable[[*_Arguments], object], *arguments: *_Arguments
    ) -> None:
        """To the gateway's thread. If that is gone they are closed, and whoever waits at the other end sees it."""
        for each in given:
            each.setblocking(False)
        try:
            self.way.gateway.call(work, *arguments)
        except StepFailedError:
            for each in given:
                each.close()
            raise

    def answer(self, query: bytes) -> bytes | None:
        """The reply to one DNS message."""
        return self.way.stub.answer(query, self.ledger.record, self.holds_canary)

    def holds_canary(self, name: str) -> bool:
        """Names carry data too."""
        alarms = CanaryWatch(self.way.canaries, "a name").feed(name.encode())
        for alarm in alarms:
            self.ledger.raise_alarm(alarm)
        return bool(alarms)

    def denials(self) -> tuple[Denial, ...]:
        """What was refused so far."""
        return self.ledger.denials()

    def passages(self) -> tuple[AllowedAttempt, ...]:
        """What was let through so far."""
        return self.ledger.passages()

    def alarms(self) -> tuple[Alarm, ...]:
        """Canaries that were on their way out; they were refused as well."""
        return self.ledger.alarms()

    def end(self) -> tuple[Denial, ...]:
        """Close everything of this run; what it was refused."""
        try:
            self.way.gateway.wait(self.close)
        except StepFailedError:
            # The thread hangs or is gone. Nothing may go on for that.
            for held in [*self._sockets, *(end for connection in self.connections for end in connection.sockets)]:
                silence(held)
        return self.denials()

    def forget(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self.way.connections -= 1
        self.way.gateway.connections -= 1

    @property
    def connections(self) -> list[Connection]:
        return list(self._connections)

    def _listen(self, sockets: Sequence[socket.socket]) -> None:
        for given in sockets:
            if given.family == socket.AF_PACKET:
                self._watch(given, self._look)
            else:
                self._watch(given, self._accept if given.type == socket.SOCK_STREAM else self._hear)

    def _watch(self, given: socket.socket, attend: Callable[[socket.socket], None]) -> None:
        if self._ended:
            given.close()
            return
        self._sockets.add(given)
        asyncio.get_running_loop().add_reader(given, attend, given)

    def _take_listeners(self, door: socket.socket) -> None:
        try:
            message, descriptors = wire.receive(door)
        except BlockingIOError:
            return
        except (OSError, ValueError):
            message, descriptors = None, []
        arrived = [socket.socket(fileno=descriptor) for descriptor in descriptors]
        for given in arrived:
            given.setblocking(False)
        self._listen(arrived)
        if message is None:
            asyncio.get_running_loop().remove_reader(door)
            self._sockets.discard(door)
            door.close()

    def _look(self, watched: socket.socket) -> None:
        """Something went where no door is, and the kernel has refused it."""
        for _ in range(_MOST_AT_ONCE):
            try:
                seen = sighting(watched.recv(SHOWN_BYTES))
            except OSError:
                return
            if seen is not None and (decision := self._decide(seen)) is not None:
                self.ledger.record(decision)

    def _decide(self, seen: Sighting) -> Decision[Attempt] | None:
        """None for a connection that a door has taken: it is judged there."""
        host = self.way.names.host_at(seen.address)
        if seen.kind != "connect":
            return deny(Attempt(seen.kind, host, seen.port), "only TCP goes out")
        if seen.port in self.way.ports:
            return None
        decision = self.way.book.decide_connection(host, seen.port)
        if decision.allowed and self.way.learns:
            return learning.refusal(decision.attempt)
        return None if decision.allowed else decision

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_MOST_AT_ONCE):
            try:
                connection, _ = listener.accept()
            except BlockingIOError:
                return
            except ConnectionAbortedError:
                continue
            except OSError:
                # Mostly that descriptors or memory are used up.
                self._pause(listener)
                return
            connection.setblocking(False)
            address, port, *_ = connection.getsockname()
            self._admit(connection, (address, port))

    def _pause(self, listener: socket.socket) -> None:
        """Spinning would not make it better."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(listener)
        loop.call_later(_PAUSE_SECONDS, self._resume, listener)

    def _resume(self, listener: socket.socket) -> None:
        if listener in self._sockets:
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    def _admit(self, connection: socket.socket, destination: Destination) -> None:
        if self._ended:
            reset(connection)
            return
        if why := self._too_many():
            attempt = Attempt("connect", self.way.names.host_at(destination[0]), destination[1])
            self.ledger.record(deny(attempt, why))
            reset(connection)
            return
        if connection.family != socket.AF_UNIX:
            with contextlib.suppress(OSError):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made = Connection(self, connection)
        self._connections.add(made)
        self.way.connections += 1
        self.way.gateway.connections += 1
        made.start(_service(destination), destination)

    def _too_many(self) -> str:
        if self.way.connections >= self.way.most_connections:
            return f"the sandbox has {self.way.most_connections} connections already, which is the most it may"
        if not self.way.gateway.has_room_for(self.way):
            return "all sandboxes together have as many connections as this process may (ulimit -n)"
        return ""

    def _hear(self, udp: socket.socket) -> None:
        for _ in range(_MOST_AT_ONCE):
            try:
                query, sender = udp.recvfrom(dns.MOST_BYTES + 1)
                if (reply := self.answer(query)) is not None:
                    udp.sendto(reply, sender)
            except OSError:
                return

    async def close(self) -> None:
        """In the gateway's thread: end everything at once."""
        closing = self.connections
        self.cut()
        for connection in closing:
            await connection.wait()
        self.way.visits.discard(self)

    def cut(self) -> None:
        self._ended = True
        loop = asyncio.get_running_loop()
        for given in self._sockets:
            loop.remove_reader(given)
            given.close()
        self._sockets.clear()
        for connection in self.connections:
            connection.abort()


def _service(destination: Destination) -> Service:
    match destination:
        case (address, port) if (address, port) == (_HERE, DNS_PORT):
            return serve_names
        case (address, port) if (address, port) == (_HERE, proxy.PORT):
            return serve_proxy
        case _:
            return serve_destination


async def serve_names(connection: Connection, _: Destination) -> None:
    """DNS over TCP: a length before each message."""
    seconds = connection.way.limits.hello_seconds
    buffer = b""
    while True:
        async with asyncio.timeout(seconds):
            while len(buffer) < 2 or len(buffer) < 2 + int.from_bytes(buffer[:2], "big"):
                if not (more := await connection.near.read(dns.MOST_BYTES)):
                    return
                buffer += more
        end = 2 + int.from_bytes(buffer[:2], "big")
        reply = connection.visit.answer(buffer[2:end])
        if reply is None:
            return
        await connection.near.write(len(reply).to_bytes(2, "big") + reply)
        buffer = buffer[end:]
