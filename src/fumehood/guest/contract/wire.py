"""The messages between host, cell and run: one JSON object and some descriptors a message.

Sequenced-packet sockets keep message borders, so a reader never sees half of one. Large things (source code,
argument lists) do not travel in messages: they lie in a sealed memory file whose descriptor is passed.
"""

from __future__ import annotations

import array
import fcntl
import json
import os
import socket
from collections.abc import Callable
from typing import Any

MAX_MESSAGE_BYTES = 64 * 1024
MAX_DESCRIPTORS = 128
# Plain numbers: combining two members of an enumeration runs a page of Python, and copies memory in every run.
_FAMILY, _PACKETS, _CLOSED = int(socket.AF_UNIX), int(socket.SOCK_SEQPACKET), int(socket.SOCK_CLOEXEC)
_TRUNCATED = int(socket.MSG_TRUNC) | int(socket.MSG_CTRUNC)
_CLOSED_ON_EXECUTION = int(socket.MSG_CMSG_CLOEXEC)
_RIGHTS = (int(socket.SOL_SOCKET), int(socket.SCM_RIGHTS))
_MAX_ANCILLARY_BYTES = socket.CMSG_SPACE(4 * MAX_DESCRIPTORS)
_scan: Callable[[str, int], tuple[Any, int]] = vars(json.JSONDecoder())["scan_once"]

Message = dict[str, Any]


def socket_pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(_FAMILY, _PACKETS | _CLOSED)


def packet_socket(descriptor: int) -> socket.socket:
    """One end of a pair that came as a descriptor. Its kind is known, which saves three questions to the kernel."""
    return socket.socket(_FAMILY, _PACKETS, 0, descriptor)


def send(channel: socket.socket, message: Message, descriptors: tuple[int, ...] = (), flags: int = 0) -> None:
    ancillary = []
    if descriptors:
        ancillary = [(*_RIGHTS, array.array("i", descriptors).tobytes())]
    channel.sendmsg([json.dumps(message).encode()], ancillary, flags)


def receive(channel: socket.socket) -> tuple[Message | None, list[int]]:
    """The next message and its descriptors; None at the end of the stream."""
    # MSG_CMSG_CLOEXEC: a descriptor must not slip into a program that is started at this very moment.
    data, ancillary, flags, _ = channel.recvmsg(MAX_MESSAGE_BYTES, _MAX_ANCILLARY_BYTES, _CLOSED_ON_EXECUTION)
    descriptors: list[int] = []
    for level, kind, payload in ancillary:
        if (level, kind) == _RIGHTS:
            descriptors.extend(array.array("i", payload[: len(payload) - len(payload) % 4]))
    if not data:
        return None, descriptors
    if flags & _TRUNCATED:
        close_all(descriptors)
        raise ValueError("a message on the control channel was larger than the protocol allows")
    try:
        return parse(data), descriptors
    except (ValueError, RecursionError) as error:
        close_all(descriptors)
        raise ValueError("a message on the control channel is not JSON") from error


def parse(data: bytes) -> Any:
    """As `json.loads`, which asks for the encoding and the white space around first; ValueError if it is not JSON."""
    text = data.decode()
    try:
        value, end = _scan(text, 0)
    except StopIteration:
        raise ValueError("not JSON") from None
    if end != len(text):
        raise ValueError("not one value of JSON")
    return value


def close_all(descriptors: list[int] | tuple[int, ...]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def sealed_file(header: Message, body: bytes) -> int:
    """A sealed memory file, which cannot be changed any more: one line of JSON, then the body as it is."""
    descriptor = os.memfd_create("request", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        pending = memoryview(json.dumps(header).encode() + b"\n" + body)
        while pending:
            pending = pending[os.write(descriptor, pending) :]
        seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_sealed_file(descriptor: int) -> tuple[Message, bytes]:
    size = os.lseek(descriptor, 0, os.SEEK_END)
    data = b""
    while len(data) < size:
        data += os.pread(descriptor, size - len(data), len(data))
    header, _, body = data.partition(b"\n")
    return parse(header), body
