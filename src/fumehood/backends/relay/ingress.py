"""Connections from the host to ports of a guest's loopback, which the guest opens and carries.

What the guest answers is checked for its form. It can answer only what it was asked, and each connection has a window
of data that may be under way, as every other conversation on the stream.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import suppress

from fumehood.guest.contract import frames, wire
from fumehood.guest.contract.channel import Channel
from fumehood.guest.contract.multiplexer import Multiplexer, Send


class RelayIngress:
    """Belongs to the bridge, and to its event loop."""

    def __init__(self, channels: Multiplexer, send: Send, take_number: Callable[[], int]) -> None:
        self._channels, self._send, self._take_number = channels, send, take_number
        self._waiting: dict[int, socket.socket] = {}

    def connect(self, port: int, answer: socket.socket) -> None:
        """Asks for a connection. `answer` gets a socket that carries it, or is closed when there is none."""
        number = self._take_number()
        self._waiting[number] = answer
        self._send({"do": "reach", "channel": number, "port": port}, b"")

    def reached(self, header: frames.Header) -> None:
        number = header["channel"]
        answer = self._waiting.pop(number, None)
        if answer is None:
            raise frames.FrameError("the guest opens a connection that it was not asked for")
        with answer:
            if header["ok"] is True:
                self._pass_on(number, answer)

    def _pass_on(self, number: int, answer: socket.socket) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        source = ours.detach()
        self._channels.add(Channel(number, source, os.dup(source)))
        # A caller that has given up meanwhile closes its end of what it never got, which ends the connection.
        with theirs, suppress(OSError):
            wire.send(answer, {"reached": True}, (theirs.fileno(),), socket.MSG_DONTWAIT)

    def close(self) -> None:
        for answer in self._waiting.values():
            answer.close()
        self._waiting.clear()
