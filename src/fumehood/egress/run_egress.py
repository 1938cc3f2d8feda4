"""One run's use of its sandbox's way out: its listeners, its connections, and what it was refused.

`listen`, `serve`, `answer` and `end` are thread-safe; everything else lives in the gateway's thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVarTuple

from fumehood.egress import dns, learn_mode
from fumehood.egress.connection import Connection, Destination
from fumehood.egress.connections import SandboxConnections
from fumehood.egress.log import EgressFailure, EgressLog
from fumehood.egress.packet_monitor import BlockedPacket, parse_packet
from fumehood.egress.rules import RunRules
from fumehood.egress.streams import reset, silence
from fumehood.errors import StepFailedError
from fumehood.guest.contract import wire
from fumehood.guest.contract.limits import SHOWN_BYTES
from fumehood.policy.decision import Decision, deny
from fumehood.policy.egress import AllowedAttempt, Attempt
from fumehood.results import Denial
from fumehood.secret_scan.canaries import CanaryAlert

if TYPE_CHECKING:
    from fumehood.egress.gateway import Gateway

DNS_PORT = 53
_MOST_AT_ONCE = 64
_PAUSE_SECONDS = 0.1
# More than the kernel keeps for one socket; who shares a namespace with a run could go on sending for ever.
_MOST_TURNS_AT_THE_END = 16
_Arguments = TypeVarTuple("_Arguments")


class RunEgress:
    """`thread` is the gateway's, `log` and `rules` are the run's own; `connections` and `ports` are the sandbox's."""

    def __init__(
        self,
        run_id: str,
        *,
        thread: Gateway,
        rules: RunRules,
        log: EgressLog,
        connections: SandboxConnections,
        ports: Callable[[], tuple[int, ...]],
        learns: bool,
        on_close: Callable[[RunEgress], None],
    ) -> None:
        self.run_id, self.log, self._rules, self._thread = run_id, log, rules, thread
        self._sandbox, self._ports, self._learns, self._on_close = connections, ports, learns, on_close
        self._connections: set[Connection] = set()
        self._sockets: dict[socket.socket, Callable[[socket.socket], bool]] = {}
        self._ended = False

    def listen(self, sockets: Sequence[socket.socket]) -> None:
        """Accept what arrives at TCP listeners and UDP sockets that were made inside. The run owns them now."""
        self._hand_over(sockets, self._listen, sockets)

    def receive_listeners(self, channel: socket.socket) -> None:
        """Take the listeners that arrive here from inside, at any time until the run is over."""
        self._hand_over([channel], self._watch, channel, self._take_listeners)

    def serve(self, connection: socket.socket, destination: Destination) -> None:
        """Take one connection that a program made to an address and port inside; without a gateway it just ends."""
        with contextlib.suppress(StepFailedError):
            self._hand_over([connection], self._admit, connection, destination)

    def _hand_over(
        self, given: Sequence[socket.socket], work: Callable[[*_Arguments], object], *arguments: *_Arguments
    ) -> None:
        """Hands sockets over to the gateway's thread. If that has ended it closes them, and their peers see the end."""
        for each in given:
            each.setblocking(False)
        try:
            self._thread.call(work, *arguments)
        except StepFailedError:
            for each in given:
                each.close()
            raise

    def answer(self, query: bytes) -> bytes | None:
        """The reply to one DNS message."""
        return self._rules.answer(query)

    def denials(self) -> tuple[Denial, ...]:
        """What was refused so far."""
        return self.log.denials()

    def allowed(self) -> tuple[AllowedAttempt, ...]:
        """What was let through so far."""
        return self.log.allowed()

    def failures(self) -> tuple[EgressFailure, ...]:
        """What was let through and failed outside."""
        return self.log.failures()

    def alerts(self) -> tuple[CanaryAlert, ...]:
        """Canaries that were on their way out; they were refused as well."""
        return self.log.alerts()

    def end(self) -> tuple[Denial, ...]:
        """Close everything of this run; what it was refused."""
        try:
            self._thread.wait(self.close)
        except StepFailedError:
            # The thread hangs or is gone. Nothing may go on for that.
            for held in [*self._sockets, *(end for connection in self.connections for end in connection.sockets)]:
                silence(held)
        return self.denials()

    @property
    def connections(self) -> list[Connection]:
        return list(self._connections)

    def _listen(self, sockets: Sequence[socket.socket]) -> None:
        for given in sockets:
            if given.family == socket.AF_PACKET:
                self._watch(given, self._look)
            else:
                self._watch(given, self._accept if given.type == socket.SOCK_STREAM else self._hear)

    def _watch(self, given: socket.socket, attend: Callable[[socket.socket], bool]) -> None:
        """`attend` takes what is there, and returns whether there may be more."""
        if self._ended:
            given.close()
            return
        self._sockets[given] = attend
        asyncio.get_running_loop().add_reader(given, attend, given)

    def _take_listeners(self, channel: socket.socket) -> bool:
        try:
            message, descriptors = wire.receive(channel)
        except BlockingIOError:
            return False
        except (OSError, ValueError):
            message, descriptors = None, []
        arrived = [socket.socket(fileno=descriptor) for descriptor in descriptors]
        for given in arrived:
            given.setblocking(False)
        self._listen(arrived)
        if message is None:
            asyncio.get_running_loop().remove_reader(channel)
            self._sockets.pop(channel, None)
            channel.close()
        return message is not None

    def _look(self, watched: socket.socket) -> bool:
        """Packets without a listener, which the kernel has refused."""
        for _ in range(_MOST_AT_ONCE):
            try:
                seen = parse_packet(watched.recv(SHOWN_BYTES))
            except OSError:
                return False
            if seen is not None and (decision := self._decide(seen)) is not None:
                self.log.record(decision)
        return True

    def _decide(self, seen: BlockedPacket) -> Decision[Attempt] | None:
        """None for a connection that a listener has accepted: it is decided there."""
        host = self._rules.host_at(seen.address)
        if seen.kind != "connect":
            return deny(Attempt(seen.kind, host, seen.port), "only TCP goes out")
        if seen.port in self._ports():
            return None
        decision = self._rules.book.decide_connection(host, seen.port)
        if decision.allowed and self._learns:
            return learn_mode.refusal(decision.attempt)
        return None if decision.allowed else decision

    def _accept(self, listener: socket.socket) -> bool:
        for _ in range(_MOST_AT_ONCE):
            try:
                connection, _ = listener.accept()
            except BlockingIOError:
                return False
            except ConnectionAbortedError:
                continue
            except OSError:
                # Mostly that descriptors or memory are used up.
                self._pause(listener)
                return False
            connection.setblocking(False)
            address, port, *_ = connection.getsockname()
            self._admit(connection, (address, port))
        return True

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
        if why := self._sandbox.why_full():
            attempt = Attempt("connect", self._rules.host_at(destination[0]), destination[1])
            self.log.record(deny(attempt, why))
            reset(connection)
            return
        if connection.family != socket.AF_UNIX:
            with contextlib.suppress(OSError):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made = self._sandbox.start(connection, destination, self._rules, self.log, on_end=self._connections.discard)
        self._connections.add(made)

    def _hear(self, udp: socket.socket) -> bool:
        for _ in range(_MOST_AT_ONCE):
            try:
                query, sender = udp.recvfrom(dns.MOST_BYTES + 1)
                if (reply := self.answer(query)) is not None:
                    udp.sendto(reply, sender)
            except OSError:
                return False
        return True

    async def close(self) -> None:
        """In the gateway's thread: end everything at once."""
        closing = self.connections
        self._catch_up()
        self.cut()
        for connection in closing:
            await connection.wait()
        self._on_close(self)

    def _catch_up(self) -> None:
        """Takes what a program sent before it ended and this thread was too busy to see: its refusals are told, too.

        First the listeners that have not arrived, then what is at them. A connection that nobody has accepted has
        sent nothing out, and is not begun any more.
        """
        for wanted in ((self._take_listeners,), (self._look, self._hear)):
            for given, attend in list(self._sockets.items()):
                turns = _MOST_TURNS_AT_THE_END if attend in wanted else 0
                while turns and attend(given):
                    turns -= 1

    def cut(self) -> None:
        self._ended = True
        loop = asyncio.get_running_loop()
        for given in self._sockets:
            loop.remove_reader(given)
            given.close()
        self._sockets.clear()
        for connection in self.connections:
            connection.abort()


async def serve_names(connection: Connection, _: Destination) -> None:
    """DNS over TCP: a length before each message."""
    seconds = connection.limits.hello_seconds
    buffer = b""
    while True:
        async with asyncio.timeout(seconds):
            while len(buffer) < 2 or len(buffer) < 2 + int.from_bytes(buffer[:2], "big"):
                if not (more := await connection.near.read(dns.MOST_BYTES, kept=len(buffer))):
                    return
                buffer += more
        end = 2 + int.from_bytes(buffer[:2], "big")
        reply = connection.rules.answer(buffer[2:end])
        if reply is None:
            return
        await connection.near.write(len(reply).to_bytes(2, "big") + reply)
        buffer = buffer[end:]
