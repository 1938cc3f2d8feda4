"""Connections that the host asks for, to ports of programs in the container: opened here, carried over its one stream.

The guest connects to its own loopback and to nothing else, waits for nothing, and decides nothing.
"""

from __future__ import annotations

import errno
import os
import select
import socket

from ..contract.channel import Channel
from ..contract.frames import Header
from ..contract.limits import LOOPBACK
from ..contract.multiplexer import Multiplexer, Send

_PLACES = ((socket.AF_INET, LOOPBACK), (socket.AF_INET6, "::1"))


class RelayConnectors:
    """Those that are under way; one that is open is a conversation as any other."""

    def __init__(self, channels: Multiplexer, send: Send) -> None:
        self._channels, self._send = channels, send
        self._under_way: dict[int, tuple[socket.socket, Header, int]] = {}
        """By descriptor: the socket, the request, and which of the places it is tried at."""

    def open(self, request: Header, place: int = 0) -> None:
        """A request that every place has refused is refused."""
        if place == len(_PLACES):
            self._send({"do": "reached", "channel": request["channel"], "ok": False}, b"")
            return
        family, address = _PLACES[place]
        try:
            line = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        except OSError:  # programs have taken all descriptors, or the kernel has no IPv6
            self.open(request, place + 1)
            return
        if line.connect_ex((address, request["port"])) not in (0, errno.EINPROGRESS):
            line.close()
            self.open(request, place + 1)
            return
        self._under_way[line.fileno()] = line, request, place
        self._channels.epoll.register(line, select.EPOLLOUT)

    def handle_event(self, descriptor: int) -> bool:
        """Whether it is one of ours; then the connection is open, or was refused."""
        if descriptor not in self._under_way:
            return False
        line, request, place = self._under_way.pop(descriptor)
        self._channels.outdate(descriptor)
        if line.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            line.close()
            self.open(request, place + 1)
            return True
        self._send({"do": "reached", "channel": request["channel"], "ok": True}, b"")
        source = line.detach()
        self._channels.add(Channel(request["channel"], source, os.dup(source)))
        return True
