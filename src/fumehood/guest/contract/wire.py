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
from typing import Any

MAX_MESSAGE_BYTES = 64 * 1024
MAX_DESCRIPTORS = 128

Message = dict[str, Any]


def socket_pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)


def packet_socket(descriptor: int) -> socket.socket:
    """One end of a pair that came as a descriptor. Its kind is known, which saves three questions to the kernel."""
    return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, descriptor)


def send(channel: socket.socket, message: Message, descriptors: tuple[int, ...] = (), flags: int = 0) -> None:
    ancillary = []
    if descriptors:
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors).tobytes())]
    channel.sendmsg([json.dumps(message).encode()], ancillary, flags)


def receive(channel: socket.socket) -> tuple[Message | None, list[int]]:
    """The next message and its descriptors; None at the end of the stream."""
    # MSG_CMSG_CLOEXEC: a descriptor must not slip into a program that is started at this very moment.
    data, ancillary, flags, _ = channel.recvmsg(
        MAX_MESSAGE_BYTES, socket.CMSG_SPACE(4 * MAX_DESCRIPTORS), socket.MSG_CMSG_CLOEXEC
    )
    descriptors: list[int] = []
    for level, kind, payload in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.extend(array.array("i", payload[: len(payload) - len(payload) % 4]))
    if not data:
        return None, descriptors
    if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
        close_all(descriptors)
        raise ValueError("a message on the control channel was larger than the protocol allows")
    try:
        return json.loads(data), descriptors
    except (ValueError, RecursionError) as error:
        close_all(descriptors)
        raise ValueError("a message on the control channel is not JSON") from error


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
    size = os.fstat(descriptor).st_size
    data = b""
    while len(data) < size:
        data += os.pread(descriptor, size - len(data), len(data))
    header, _, body = data.partition(b"\n")
    return json.loads(header), body
