"""Bytes in and out of a connection, plain or in TLS, with what has been read too early put back in front."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
import time
from collections.abc import Callable
from typing import Protocol

from fumehood.egress.limits import SandboxMemory

# A connection whose reader is slow holds as much as was read last, so more than pays off is not read at a time.
READ_BYTES = 64 * 1024
# Of TLS there are up to four copies, and OpenSSL keeps their room.
_FEED_BYTES = 64 * 1024
# The most that OpenSSL keeps of what it cannot decrypt yet: a record, or the other side's certificates.
_MOST_RECORD_BYTES = 5 + 16 * 1024 + 2048
_MOST_HANDSHAKE_BYTES = 128 * 1024
_MOST_SECONDS_AT_ONCE = 0.002
_FAREWELL_SECONDS = 1.0
_MOST_FAREWELL_BYTES = 1024 * 1024
_RESET = struct.pack("ii", 1, 0)


class Stream(Protocol):
    async def read(self, most: int = READ_BYTES, *, kept: int = 0) -> bytes:
        """Some bytes; none at the end. `kept` is how many bytes of earlier reads the caller has not delivered."""
        ...

    async def write(self, data: bytes) -> None: ...

    async def farewell(self, words: bytes = b"") -> None:
        """Last words, and the end. They arrive: closing with something unread would reset the connection."""
        ...

    def is_fresh(self) -> bool:
        """Whether no data has arrived that was not requested, and the peer has not closed."""
        ...


class PlainStream:
    """A socket. `meter` is called with the number of bytes of each read and write, and may refuse by raising.

    What was read last counts as held in `memory` until the next read: by then it is delivered, or the reader says how
    much of it and of what came before it has kept.
    """

    def __init__(
        self,
        connection: socket.socket,
        meter: Callable[[int], None] | None = None,
        memory: SandboxMemory | None = None,
    ) -> None:
        self.connection = connection
        self._loop = asyncio.get_running_loop()
        self._early = b""
        self._meter, self._memory = meter, memory
        self._held_bytes = 0
        self._gave_way = time.monotonic()

    def put_back(self, data: bytes) -> None:
        self._early = data + self._early

    def take_back(self) -> bytes:
        early, self._early = self._early, b""
        return early

    async def read(self, most: int = READ_BYTES, *, kept: int = 0) -> bytes:
        self.check_kept(kept)
        return await self.read_beside(kept, most)

    def check_kept(self, kept: int) -> None:
        """Raises MemoryUsedUpError if a reader that has kept so many bytes may not have more."""
        if self._memory is not None:
            self._memory.check_kept(kept)

    async def read_beside(self, kept: int, most: int) -> bytes:
        """Like `read`, for what has to be kept to go on at all, and is bounded."""
        if self._early:
            # Counted when it was read first.
            data, self._early = self._early[:most], self._early[most:]
            return data
        await self.give_way()
        self._hold(kept)
        while (data := self._receive(most)) is None:
            await self._readable()
        self._hold(kept + len(data))
        self._count(data)
        return data

    def release(self) -> None:
        """Nothing that was read is held any more."""
        self._hold(0)

    def _receive(self, most: int) -> bytes | None:
        try:
            return self.connection.recv(most if self._memory is None else self._memory.piece(most))
        except BlockingIOError:
            return None

    async def _readable(self) -> None:
        """Waits without reading: how much may be read is decided when there is something."""
        ready: asyncio.Future[None] = self._loop.create_future()
        descriptor = self.connection.fileno()
        self._loop.add_reader(descriptor, _finish, ready)
        try:
            await ready
        finally:
            self._loop.remove_reader(descriptor)

    def _hold(self, size: int) -> None:
        if self._memory is not None:
            self._memory.hold(size - self._held_bytes)
            self._held_bytes = size

    def arrived(self) -> bytes | None:
        """What can be read without waiting: None if there is nothing, no bytes at the end."""
        try:
            data = self.connection.recv(READ_BYTES)
        except BlockingIOError:
            return None
        self._count(data)
        return data

    async def write(self, data: bytes) -> None:
        await self.give_way()
        self._count(data)
        await self._loop.sock_sendall(self.connection, data)

    async def give_way(self) -> None:
        """Now and then let others have their turn: a socket that is always ready never waits, and neither do we."""
        if time.monotonic() - self._gave_way > _MOST_SECONDS_AT_ONCE:
            await asyncio.sleep(0)
            self._gave_way = time.monotonic()

    def _count(self, data: bytes) -> None:
        if self._meter is not None:
            self._meter(len(data))

    async def farewell(self, words: bytes = b"") -> None:
        await self.write(words)
        self.connection.shutdown(socket.SHUT_WR)
        drained = 0
        with contextlib.suppress(OSError):
            async with asyncio.timeout(_FAREWELL_SECONDS):
                while drained < _MOST_FAREWELL_BYTES and (data := await self.read()):
                    drained += len(data)

    def is_fresh(self) -> bool:
        try:
            self.connection.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return not self._early
        except OSError:
            return False
        return False


class TlsStream:
    """TLS on top of a plain stream."""

    def __init__(self, below: PlainStream, context: ssl.SSLContext, *, server_name: str | None, server: bool) -> None:
        self._below = below
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server, server_hostname=server_name)
        # Reading may have something to send as well, and records must not be torn apart.
        self._sending = asyncio.Lock()
        self._unfinished_bytes = 0
        """What OpenSSL has taken and has given nothing for."""

    async def handshake(self) -> None:
        while True:
            waiting = self._incoming.pending
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._unfinished_bytes = min(self._unfinished_bytes + waiting, _MOST_HANDSHAKE_BYTES)
                await self._flush()
                await self._feed()
            except ssl.SSLError:
                # Sends the TLS alert to the peer as well.
                await self._flush()
                raise
            else:
                self._unfinished_bytes = 0
                return await self._flush()

    async def read(self, most: int = READ_BYTES, *, kept: int = 0) -> bytes:
        self._below.check_kept(kept)
        await self._below.give_way()
        while True:
            try:
                return self._decrypted(most)
            except ssl.SSLWantReadError:
                await self._flush()
                await self._feed(kept)
            except ssl.SSLZeroReturnError:
                return b""

    async def write(self, data: bytes) -> None:
        self._tls.write(data)
        await self._flush()

    async def farewell(self, words: bytes = b"") -> None:
        if words:
            self._tls.write(words)
        # Says that nothing more comes, so that the other side knows that nothing was cut off.
        with contextlib.suppress(ssl.SSLError):
            self._tls.unwrap()
        async with self._sending:
            await self._below.farewell(self._outgoing.read())

    def is_fresh(self) -> bool:
        try:
            data = self._below.arrived()
            if data == b"":
                return False
            self._incoming.write(data or b"")
            self._decrypt(1)
        except ssl.SSLWantReadError:
            # At most a ticket for another connection.
            return True
        except OSError:
            return False
        return False

    def _decrypted(self, most: int) -> bytes:
        """All records that are there, so that they are passed on together and not kept here."""
        data = self._decrypt(most)
        with contextlib.suppress(ssl.SSLError):  # which comes again with the next call, if it is more than an end
            # Nothing is read behind the other side's farewell, however much of it has arrived.
            while len(data) < most and self._incoming.pending and (more := self._decrypt(most - len(data))):
                data += more
        return data

    def _decrypt(self, most: int) -> bytes:
        waiting = self._incoming.pending
        try:
            data = self._tls.read(most)
        except ssl.SSLWantReadError:
            self._unfinished_bytes = min(self._unfinished_bytes + waiting, _MOST_RECORD_BYTES)
            raise
        self._unfinished_bytes = 0
        return data

    async def _feed(self, kept: int = 0) -> None:
        data = await self._below.read_beside(kept + self._unfinished_bytes, _FEED_BYTES)
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()

    async def _flush(self) -> None:
        if not self._outgoing.pending:
            return
        async with self._sending:
            if data := self._outgoing.read():
                await self._below.write(data)


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def reset(connection: socket.socket) -> None:
    """Close at once: the other side sees a reset, and nothing that is still on its way arrives."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    connection.close()


def silence(connection: socket.socket) -> None:
    """Nothing moves from here on, in any thread; the socket still has to be closed by who uses it."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
