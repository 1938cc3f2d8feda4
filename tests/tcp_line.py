"""A line to a TCP server that is as bad as real ones: slow, with stalls, cut in one direction or both, or reset.

The kernel of a test machine need not have netem. What a lost packet is to a program is a stall until it is sent again.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Literal

Direction = Literal["up", "down"]
"""To the server, and from it."""
_AT_ONCE_BYTES = 65536
_RESET = struct.pack("ii", 1, 0)
"""What SO_LINGER is to be for a connection that ends with a reset."""


class TcpLine:
    """`delay` is for each direction; one in so many pieces of data (`stalls_one_in`) waits `stall` seconds more."""

    def __init__(
        self, port: int, *, delay: float = 0.0, stall: float = 0.0, stalls_one_in: int = 0, seed: int = 19
    ) -> None:
        self._target, self._delay, self._stall, self._stalls_one_in = port, delay, stall, stalls_one_in
        self._chance = random.Random(seed)
        self._passes: dict[Direction, asyncio.Event] = {}
        self._connections: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = self._do(self._listen())
        self.port: int = self._server.sockets[0].getsockname()[1]

    def hold(self, *directions: Direction) -> None:
        """Nothing passes any more, and neither end is told."""
        self._do(self._set(directions, passes=False))

    def release(self) -> None:
        """What was held arrives."""
        self._do(self._set(("up", "down"), passes=True))

    def cut(self) -> None:
        """Both ends of every connection get a reset; they may dial again."""
        self._do(self._reset())

    def close(self) -> None:
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    async def _listen(self) -> asyncio.Server:
        self._passes = {"up": asyncio.Event(), "down": asyncio.Event()}
        await self._set(("up", "down"), passes=True)
        return await asyncio.start_server(self._accept, "127.0.0.1", 0)

    async def _set(self, directions: tuple[Direction, ...], *, passes: bool) -> None:
        for each in directions:
            (self._passes[each].set if passes else self._passes[each].clear)()

    async def _reset(self) -> None:
        for writer in self._connections:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()

    async def _end(self) -> None:
        self._server.close()
        await self._reset()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._loop.shutdown_default_executor()

    async def _accept(self, near_reader: asyncio.StreamReader, near: asyncio.StreamWriter) -> None:
        try:
            far_reader, far = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:  # the server is away
            near.transport.abort()
            return
        ends = {near, far}
        self._connections |= ends
        copies = [self._copy("up", near_reader, far), self._copy("down", far_reader, near)]
        tasks = {self._loop.create_task(copy) for copy in copies}
        self._tasks |= tasks
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._tasks -= tasks
            self._connections -= ends
            for writer in ends:
                writer.transport.abort()

    async def _copy(self, direction: Direction, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(64)
        passing = self._loop.create_task(self._pass(direction, pieces, sink))
        try:
            with suppress(OSError):
                while data := await source.read(_AT_ONCE_BYTES):
                    await pieces.put((self._loop.time() + self._delay + self._stalled(), data))
            await pieces.put((0.0, b""))
            await passing
        finally:
            passing.cancel()

    def _stalled(self) -> float:
        return self._stall if self._stalls_one_in and self._chance.randrange(self._stalls_one_in) == 0 else 0.0

    async def _pass(
        self, direction: Direction, pieces: asyncio.Queue[tuple[float, bytes]], sink: asyncio.StreamWriter
    ) -> None:
        """In order, each when it is due."""
        while True:
            due, data = await pieces.get()
            await asyncio.sleep(max(0.0, due - self._loop.time()))
            await self._passes[direction].wait()
            if not data:
                return
            with suppress(OSError):
                sink.write(data)
                await sink.drain()
