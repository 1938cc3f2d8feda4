"""NATS's client for Python, with what it leaves open closed, and a shorter way for small messages.

A NATS server greets in the clear. The client believes that greeting, which anyone on the way can write: without
`tls_required` in it, it would go on in the clear and never look at a certificate, and it would connect to further
servers that the greeting names. Nothing here is imported before a connection is made: the client is an extra.

For each message that it sends, the client wakes one task, and for each that it receives, two. `send` and `listen` wake
none: what is sent in one turn of the event loop is written together at its end, and what has come is handed over where
it was read.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import BadSubjectError, ConnectionClosedError, Error, MaxPayloadError, OutboundBufferLimitError

_CLOSE_SECONDS = 2.0
_WRITE_BYTES = 8192
"""So much is written before the turn of the loop is over: the other end begins with it meanwhile."""
_MOST_UNWRITTEN_BYTES = 64 * 1024
_CONGESTED_BYTES = 1024 * 1024
_WORD = re.compile(r"[!-~]+")


class NoTlsError(Error):
    def __init__(self) -> None:
        super().__init__("it greets without TLS: either it is not configured for it, or somebody else answers there")


class NatsClient(Client):
    """Goes on after a greeting by TLS alone, if it was given an address or a context for that."""

    def __init__(self) -> None:
        super().__init__()
        self._listening: dict[int, Callable[[Msg], object]] = {}
        """By the number of their subscription."""
        self._is_write_due = False

    # A shorter way.

    def send(self, subject: str, data: bytes, reply: str = "") -> None:
        """As `publish`, and in order with it. Does not wait: who sends much asks before whether it `is_congested`."""
        if self.is_closed:
            raise ConnectionClosedError
        if len(data) > self._max_payload:
            raise MaxPayloadError
        if _WORD.fullmatch(subject) is None or (reply and _WORD.fullmatch(reply) is None):
            raise BadSubjectError  # it would be a further line to NATS
        command = b"PUB %b %b %d\r\n%b\r\n" % (subject.encode(), reply.encode(), len(data), data)
        if not self.is_connected and self._pending_data_size + len(command) > self._max_pending_size:
            raise OutboundBufferLimitError
        self._pending.append(command)
        self._pending_data_size += len(command)
        if self._pending_data_size >= _WRITE_BYTES:
            self._write()
        elif not self._is_write_due:
            self._is_write_due = True
            asyncio.get_running_loop().call_soon(self._write_due)

    @property
    def is_congested(self) -> bool:
        """Whether NATS reads more slowly than this process sends; `wait_for_room` waits until it has caught up."""
        return self._pending_data_size > _CONGESTED_BYTES

    async def wait_for_room(self) -> None:
        await self._flush_pending(force_flush=True)

    def _write_due(self) -> None:
        self._is_write_due = False
        self._write()

    def _write(self) -> None:
        """All that waits, unless there is no connection, which sends it when it is made again."""
        if not self.is_connected or not self._pending:
            return
        writer: Any = getattr(self._transport, "_io_writer", None)
        if writer is not None and writer.transport.get_write_buffer_size() < _MOST_UNWRITTEN_BYTES:
            waiting, self._pending, self._pending_data_size = self._pending, [], 0
            writer.write(b"".join(waiting))
        elif self._flush_queue is not None and self._flush_queue.empty():
            # The client's own task for it waits until the transport takes more.
            self._flush_queue.put_nowait(asyncio.get_running_loop().create_future())

    async def listen(self, subject: str, take: Callable[[Msg], object]) -> Subscription:
        """As `subscribe`, with a plain function, which is called where the message was read."""

        async def never(message: Msg) -> None:
            raise AssertionError("a message that was not handed over")

        number = self._sid + 1
        self._listening[number] = take
        try:
            subscription = await self.subscribe(subject, cb=never)  # pyright: ignore[reportUnknownMemberType] - a parameter not used here
            if subscription._id != number:  # pyright: ignore[reportPrivateUsage]
                raise RuntimeError("the client numbers subscriptions in another way")
        except BaseException:
            del self._listening[number]  # the number may be the next one's
            raise
        return subscription

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        take = self._listening.get(sid)
        if take is None:
            await super()._process_msg(sid, subject, reply, data, headers)
            return
        if sid not in self._subs:
            del self._listening[sid]
            return
        found = await self._process_headers(headers) if headers else None  # pyright: ignore[reportUnknownMemberType] - likewise
        try:
            take(Msg(self, subject.decode(), reply.decode(), data, found))
        except Exception as error:
            await self._error_cb(error)

    # Safety.

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        """Before anything is said to the server, and again when it has something new to say of itself."""
        if initial_connection and self._needs_tls() and not info.get("tls_required"):
            raise NoTlsError
        # All addresses are the owner's to give.
        info.pop("connect_urls", None)
        await super()._process_info(info, initial_connection)

    def _needs_tls(self) -> bool:
        server = self._current_server
        if server is None or server.uri.scheme == "wss":  # its TLS came before the greeting
            return False
        return server.uri.scheme == "tls" or "tls" in self.options

    async def close(self) -> None:
        """In a bounded time: it would wait for ever for the end of a handshake that was broken off."""
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await super().close()
        except TimeoutError:
            pass
        finally:
            self._abort()

    def _abort(self) -> None:
        """What is left of a connection whose other end does not answer."""
        transport: Any = self._transport
        for name in ("_io_writer", "_bare_io_writer"):
            writer = getattr(transport, name, None)
            if writer is not None:
                writer.transport.abort()
