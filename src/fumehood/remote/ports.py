"""A published port of a sandbox that is elsewhere: an address of this machine's loopback, and connections through it.

The token, the names that are accepted and the record of each request are where the sandbox is. Here bytes are passed
on, whoever sends them.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Coroutine, Mapping
from types import TracebackType
from typing import Self

import anyio

from fumehood.errors import FumehoodError
from fumehood.guest.contract.frames import Header
from fumehood.guest.contract.limits import LOOPBACK
from fumehood.policy import Seconds, read_seconds
from fumehood.remote import calls
from fumehood.remote.conversations import Conversations
from fumehood.remote.tunnel import carry_to_port
from fumehood.remote.values import text_of

MOST_CONNECTIONS = 64
"""Of one port, at once; a link has room for a few times as many calls."""


class RemoteExposedPort:
    """As `AsyncExposedPort`; made by `RemoteSandbox.expose`.

    With `client_port` its address is that port of another machine, where a client of ours listens: nothing listens
    here, and connections come by `admit`.
    """

    def __init__(self, conversations: Conversations, port: int, client_port: int | None = None) -> None:
        self._conversations, self.port, self._client_port = conversations, port, client_port
        self._is_open = False
        self._listener: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._answer: Header = {}

    async def open(self) -> Self:
        self._is_open, listening_port = True, self._client_port
        if listening_port is None:
            self._listener = await asyncio.start_server(self._accept, LOOPBACK, 0)
            listening_port = self._listener.sockets[0].getsockname()[1]
        try:
            header = {"do": "port.open", "port": self.port, "client_port": listening_port}
            self._answer = (await calls.ask(self._conversations, header)).header
            self.url, self.address = text_of(self._answer, "url"), text_of(self._answer, "address")
        except BaseException:
            self._stop()
            raise
        return self

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.port} at {self.address})"

    @property
    def headers(self) -> Mapping[str, str]:
        """The header that holds the token, for programs."""
        return dict(self._answer["headers"])

    @property
    def is_open(self) -> bool:
        return self._is_open

    def admit(self, connection: socket.socket) -> None:
        """A connection that was accepted elsewhere, for a port whose address is there."""
        if self._has_room:
            self._begin(self._carry_socket(connection))
        else:
            connection.close()

    async def wait_ready(self, timeout: Seconds | None = 30) -> None:
        """Until a program listens on the port; TimeoutError if none does in time."""
        with anyio.fail_after(None if timeout is None else read_seconds(timeout, "timeout")):
            await calls.ask(self._conversations, self._header("wait"))

    async def close(self) -> None:
        """When this returns nothing listens there any more, and what was asked for is in the server's audit log."""
        if not self._is_open:
            return
        self._stop()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await calls.ask(self._conversations, self._header("close"))

    def _stop(self) -> None:
        """Without a word to the server, which may be gone."""
        listener, self._listener, self._is_open = self._listener, None, False
        if listener is not None:
            listener.close()
        for task in self._connections:
            task.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._has_room:
            self._begin(self._carry(reader, writer))
        else:
            writer.transport.abort()

    @property
    def _has_room(self) -> bool:
        return self._is_open and len(self._connections) < MOST_CONNECTIONS

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(work)
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _carry_socket(self, connection: socket.socket) -> None:
        try:
            reader, writer = await asyncio.open_connection(sock=connection)
        except BaseException:
            connection.close()
            raise
        await self._carry(reader, writer)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with calls.begin(self._conversations, self._header("connect")) as conversation:
                await calls.expect_answer(conversation)
                await carry_to_port(conversation, reader, writer)
        except FumehoodError:
            pass  # refused, or the sandbox is gone: the connection ends without an answer
        finally:
            writer.close()

    def _header(self, what: str) -> Header:
        return {"do": f"port.{what}", "part": self._answer["opened"]}
