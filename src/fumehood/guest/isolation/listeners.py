"""A run's listeners: sockets in its network namespace on which the gateway, outside, takes what the program sends out.

The cell makes them, in a moment that it spends in the run's network namespace, and passes them to the host. No process
of the run ever holds one, and nothing inside carries the data: the host accepts on them directly.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from ..contract import wire
from ..contract.limits import LOOPBACK
from . import kernel
from .packet_monitor import open_packet_monitor
from .steps import step

DNS_PORT = 53
# How many connections may wait for the gateway; it takes them at once unless it is overwhelmed.
BACKLOG = 128
_SENT_AT_ONCE = 100

_LOOPBACK_DEVICE = 1
_RTM_NEWROUTE, _NLM_F_REQUEST_ACK_CREATE = 24, 0x405
_RT_TABLE_LOCAL, _RTPROT_STATIC, _RT_SCOPE_HOST, _RTN_LOCAL, _RTA_OIF = 255, 4, 254, 2, 4
_ERROR_NUMBER = struct.Struct("=16xi")


class Listeners:
    """The listeners in the network namespace of one run, which one of its processes identifies."""

    def __init__(self, process: int, *, is_watched: bool, is_shared: bool = False) -> None:
        """In a namespace that is shared, an earlier run may have opened some, and the gateway have them."""
        self.is_watched, self._is_shared = is_watched, is_shared
        self._namespace = os.open(f"/proc/{process}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self._waiting: list[socket.socket] = []
        self._ports: set[int] = set()

    def open(self, ports: Iterable[int], own_namespace: int) -> None:
        """Those that are not open yet. The descriptor leads back to where the cell lives."""
        missing = sorted(set(ports) - self._ports)
        if not missing:
            return
        with step("opening listeners for the gateway"):
            # SAFETY: a network namespace that this cell has made, for as long as it takes to make some sockets.
            kernel.setns(self._namespace, kernel.CLONE_NEWNET)
            try:
                if not self._ports:
                    with self._or_another_has_it():
                        self._open_first()
                for port in missing:
                    with self._or_another_has_it():
                        self._waiting.append(listener(port))
                    self._ports.add(port)
            finally:
                kernel.setns(own_namespace, kernel.CLONE_NEWNET)

    def _open_first(self) -> None:
        _lead_everything_here(is_repeatable=self._is_shared)
        self._waiting.append(question_socket())
        if self.is_watched:
            with suppress(OSError):  # a kernel without such sockets refuses the same, and logs less
                self._waiting.append(open_packet_monitor())

    @contextmanager
    def _or_another_has_it(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if not self._is_shared or error.errno != errno.EADDRINUSE:
                raise

    def pass_on(self, ports: Iterable[int], line: socket.socket) -> None:
        """Those for these ports, to the host; an unused one is closed, and connections to it are refused."""
        wanted = set(ports)
        passed = [
            listener for listener in self._waiting if _port(listener) in wanted or listener.family == socket.AF_PACKET
        ]
        self._ports -= {_port(listener) for listener in self._waiting} - wanted
        for start in range(0, len(passed), _SENT_AT_ONCE):
            part = tuple(listener.fileno() for listener in passed[start : start + _SENT_AT_ONCE])
            wire.send(line, {"listeners": True}, part)
        self._close_waiting()

    def close(self) -> None:
        self._close_waiting()
        os.close(self._namespace)

    def _close_waiting(self) -> None:
        for listener in self._waiting:
            listener.close()
        self._waiting = []


def listener(port: int) -> socket.socket:
    """A listener on every address: an accepted connection's local address is the one that the program dialled."""
    line = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        # Connections that an earlier listener has closed keep its port for a minute otherwise.
        line.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        line.bind(("0.0.0.0", port))
        line.listen(BACKLOG)
    except BaseException:
        line.close()
        raise
    return line


def question_socket() -> socket.socket:
    line = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    line.bind((LOOPBACK, DNS_PORT))
    return line


def _port(listener: socket.socket) -> int | None:
    return listener.getsockname()[1] if listener.family == socket.AF_INET else None


def connector(network: int, own_namespace: int, family: socket.AddressFamily) -> socket.socket:
    """A socket that belongs to this network namespace, for the host to connect with: it reaches nothing else."""
    with step("making a socket in the sandbox's network"):
        # SAFETY: a network namespace that this cell has made, for as long as it takes to make a socket.
        kernel.setns(network, kernel.CLONE_NEWNET)
        try:
            return socket.socket(family, socket.SOCK_STREAM)
        finally:
            kernel.setns(own_namespace, kernel.CLONE_NEWNET)


def _lead_everything_here(*, is_repeatable: bool) -> None:
    """Every IPv4 address is this namespace's own: each connection arrives at a listener or is refused at once.

    There is no device but the loopback, so nothing that was unreachable before can be reached by it.
    """
    route = struct.pack("=8BI", socket.AF_INET, 0, 0, 0, _RT_TABLE_LOCAL, _RTPROT_STATIC, _RT_SCOPE_HOST, _RTN_LOCAL, 0)
    body = route + struct.pack("=HHI", 8, _RTA_OIF, _LOOPBACK_DEVICE)
    header = struct.pack("=IHHII", 16 + len(body), _RTM_NEWROUTE, _NLM_F_REQUEST_ACK_CREATE, 1, 0)
    with socket.socket(fileno=kernel.route_socket(socket.SOCK_RAW | socket.SOCK_CLOEXEC)) as line:
        line.sendto(header + body, (0, 0))
        (number,) = _ERROR_NUMBER.unpack_from(line.recv(4096))
    if number and not (is_repeatable and number == -errno.EEXIST):
        raise OSError(-number, os.strerror(-number))
