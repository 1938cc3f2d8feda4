"""The listeners of a container: what arrives there is carried to the gateway over the container's one stream.

The guest holds them, because no descriptor leads out of a container. It carries bytes and decides nothing: one more
or less is no more than a conversation with the gateway that begins or does not.
"""

from __future__ import annotations

import os
import select
import socket
from contextlib import suppress

from ..contract.channel import Channel
from ..contract.frames import Header
from ..contract.limits import MAX_DATAGRAM_BYTES, MOST_CONNECTIONS
from ..contract.multiplexer import Multiplexer, Send
from ..isolation import listeners

# Under way to the host. Further ones wait in the socket, and are lost when that is full: what a run has to say besides,
# its end above all, must not stand behind them.
_MOST_QUESTIONS = 16
_RESET_WHEN_CLOSED = b"\1\0\0\0\0\0\0\0"


class RelayListeners:
    """Open while runs are under way that may go out."""

    def __init__(self, channels: Multiplexer, send: Send) -> None:
        self._channels = channels
        self._send = send
        self._listeners: dict[int, socket.socket] = {}
        """By port."""
        self._questions: socket.socket | None = None
        self._askers: dict[int, tuple[str, int]] = {}
        """The senders of DNS queries that the host has not answered."""
        self._by_descriptor: dict[int, socket.socket] = {}
        self._accepted = self._asked = 0

    def change(self, ports: list[int]) -> None:
        """Listen at these ports, and no others."""
        for port in set(self._listeners) - set(ports):
            self._close(self._listeners.pop(port))
        for port in set(ports) - set(self._listeners):
            with suppress(OSError):  # a program listens there itself, and there is no way out by that port
                self._listeners[port] = self._watch(listeners.listener(port))
        if ports and self._questions is None:
            with suppress(OSError):
                self._questions = self._watch(listeners.question_socket())
        elif not ports and self._questions is not None:
            self._close(self._questions)
            self._questions = None
            self._askers.clear()

    def handle_event(self, descriptor: int) -> bool:
        """Whether it is one of ours; then something has arrived there."""
        listener = self._by_descriptor.get(descriptor)
        if listener is None:
            return False
        with suppress(OSError):  # the program has closed it again
            if listener is self._questions:
                self._ask(listener)
            else:
                self._admit(listener)
        return True

    def _watch(self, listener: socket.socket) -> socket.socket:
        listener.setblocking(False)
        self._by_descriptor[listener.fileno()] = listener
        self._channels.epoll.register(listener, select.EPOLLIN)
        return listener

    def _close(self, listener: socket.socket) -> None:
        del self._by_descriptor[listener.fileno()]
        self._channels.outdate(listener.fileno())
        listener.close()

    def _admit(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        if sum(number < 0 for number in self._channels.numbers) >= MOST_CONNECTIONS:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_WHEN_CLOSED)
            connection.close()
            return
        self._accepted += 1
        number = -self._accepted  # the host counts upwards
        self._send({"do": "connect", "channel": number, "to": list(connection.getsockname()[:2])}, b"")
        source = connection.detach()
        self._channels.add(Channel(number, source, os.dup(source)))

    def _ask(self, listener: socket.socket) -> None:
        query, asker = listener.recvfrom(MAX_DATAGRAM_BYTES)
        self._asked += 1
        self._askers[self._asked] = asker
        if len(self._askers) == _MOST_QUESTIONS:
            self._channels.epoll.modify(listener, 0)
        self._send({"do": "ask", "number": self._asked}, query)

    def answer(self, header: Header, body: bytes) -> None:
        """An empty one is no answer."""
        asker = self._askers.pop(header["number"], None)
        if asker is None or self._questions is None:
            return
        self._channels.epoll.modify(self._questions, select.EPOLLIN)
        if body:
            with suppress(OSError):
                self._questions.sendto(body, asker)
