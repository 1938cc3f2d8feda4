"""Connections of clients, before anything is known of them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import uvicorn
from websockets.asyncio.client import ClientConnection, connect

from fumehood.server.connections import BoundedWebSocket, TimedProtocol

pytestmark = pytest.mark.anyio

_SENT_BYTES, _SECONDS = 256 * 1024 * 1024, 1
_MOST_HELD_BYTES = 256 * 1024
Receive = Callable[[], Awaitable[dict[str, Any]]]


class Held(BoundedWebSocket):
    """Its application lets the client in and receives what the test asks for."""

    last: Held

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        Held.last = self

    @property
    def waiting_bytes(self) -> int:
        waiting: list[dict[str, Any]] = [*vars(self.queue)["_queue"]]
        return sum(len(message["bytes"]) for message in waiting)


class Application:
    def __init__(self) -> None:
        self.receive: asyncio.Future[Receive] = asyncio.get_running_loop().create_future()
        self.end = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        self.receive.set_result(receive)
        await self.end.wait()


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[ClientConnection, Receive]]:
    application = Application()
    config = uvicorn.Config(
        application, http=TimedProtocol, ws=Held, lifespan="off", log_config=None, timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.ensure_future(server._serve([listener]))  # pyright: ignore[reportPrivateUsage] - the other takes the signals
        try:
            address = f"ws://127.0.0.1:{listener.getsockname()[1]}"
            async with connect(address, compression=None, ping_interval=None, close_timeout=0.1) as client:
                try:
                    yield client, await application.receive
                finally:
                    application.end.set()  # or the client would wait for room to say that it goes
        finally:
            server.should_exit = True
            await serving


@pytest.mark.parametrize("size", [1000, 16 * 1024, 200_000])
async def test_of_messages_that_are_not_received_few_are_held(size: int) -> None:
    async with connected() as (client, _):
        with suppress(TimeoutError):
            async with asyncio.timeout(_SECONDS):
                for _ in range(_SENT_BYTES // size):
                    await client.send(bytes(size))
        assert Held.last.waiting_bytes <= _MOST_HELD_BYTES


async def test_every_message_arrives_in_order_whether_it_is_small_or_large() -> None:
    sizes = [1, 70_000, 3, 16 * 1024, 16 * 1024 + 1, 5, 5, 200_000, 7] * 20
    async with connected() as (client, receive):
        sending = asyncio.ensure_future(_send_all(client, sizes))
        assert [len((await receive())["bytes"]) for _ in sizes] == sizes
        await sending


async def _send_all(client: ClientConnection, sizes: list[int]) -> None:
    for size in sizes:
        await client.send(bytes(size))
