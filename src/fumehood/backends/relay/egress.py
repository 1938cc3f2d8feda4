"""What comes out of a guest's listeners, on its way to the gateway.

A guest has one network for all its runs. While several are under way the gateway cannot tell whose connection it
is, so they share a visit. What the guest sends of a connection is checked for its form; the gateway decides the rest.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from ipaddress import IPv4Address

from fumehood.backends.interface import EgressEndpoint
from fumehood.guest.contract import frames
from fumehood.guest.contract.channel import Channel
from fumehood.guest.contract.limits import MAX_DATAGRAM_BYTES, MOST_CONNECTIONS
from fumehood.guest.contract.multiplexer import Multiplexer, Send

# More than a run's source, its input and the windows of its connections can be together.
_MOST_UNREAD_BYTES = 256 * 1024 * 1024


class RelayEgress:
    """Belongs to the bridge, and to its event loop."""

    def __init__(self, channels: Multiplexer, send: Send, unread_bytes: Callable[[], int]) -> None:
        """`unread_bytes` is how much of what was sent the guest has not taken."""
        self._channels = channels
        self._send = send
        self._unread_bytes = unread_bytes
        self._endpoints: list[EgressEndpoint] = []
        self._ports: tuple[int, ...] = ()

    def enter(self, endpoint: EgressEndpoint) -> None:
        self._endpoints.append(endpoint)
        self.change(endpoint.ports)

    def leave(self, endpoint: EgressEndpoint) -> None:
        """Removes a run's endpoint. After the last one the listeners and all open connections are closed."""
        self._endpoints.remove(endpoint)
        if not self._endpoints:
            self.change(())
            for number in [number for number in self._channels.numbers if number < 0]:
                self._channels.drop(number)
                self._turn_away(number)

    def change(self, ports: tuple[int, ...]) -> None:
        if ports != self._ports and (self._endpoints or not ports):
            self._ports = ports
            self._send({"do": "ports", "ports": list(ports)}, b"")

    def admit(self, header: frames.Header) -> None:
        self._refuse_deaf_guest()
        number, destination = _checked(header)
        known = [other for other in self._channels.numbers if other < 0]
        if number in known:
            raise frames.FrameError("the guest opens a connection that is open already")
        # The guest counts too, but some that are over for it may not be over here.
        if not self._endpoints or len(known) >= MOST_CONNECTIONS:
            self._turn_away(number)
            return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        source = ours.detach()
        self._channels.add(Channel(number, source, os.dup(source)))
        self._endpoints[0].acceptor.serve(theirs, destination)

    def _turn_away(self, number: int) -> None:
        for word in ("hangup", "end"):
            self._send({"do": word, "channel": number}, b"")

    def _refuse_deaf_guest(self) -> None:
        """Ours reads. One that only asks would have its answers fill our memory."""
        if self._unread_bytes() > _MOST_UNREAD_BYTES:
            raise frames.FrameError("the guest asks and asks, and does not listen")

    def answer(self, header: frames.Header, query: bytes) -> None:
        self._refuse_deaf_guest()
        if len(query) > MAX_DATAGRAM_BYTES or not isinstance(header["number"], int):
            raise frames.FrameError("the guest asks what no program can ask")
        answer = self._endpoints[0].acceptor.answer(query) if self._endpoints else None
        # Nothing is an answer, too: the guest has few questions under way at a time.
        self._send({"do": "answer", "number": header["number"]}, answer or b"")


def _checked(header: frames.Header) -> tuple[int, tuple[str, int]]:
    number, (host, port) = header["channel"], header["to"]
    if not isinstance(number, int) or number >= 0 or not isinstance(port, int) or not 0 < port < 65536:
        raise frames.FrameError("the guest reports a connection that is not valid")
    return number, (str(IPv4Address(host)), port)
