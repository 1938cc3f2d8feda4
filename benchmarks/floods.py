"""Clients that want more of a server than their share: with its address alone, or with the key of one tenant.

Each is a block; the flood goes on as long as the block does, and comes from a process of its own, so that those who
measure what others notice of it are not held up themselves. Nothing leaves the loopback.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

_PINGS = 500
_PIPELINED = 200
_PAUSE_SECONDS = 0.5
_ROOT = Path(__file__).parent.parent


class Victim(NamedTuple):
    """An address of a server, and the key of the tenant that floods it."""

    url: str
    key: str
    is_e2b: bool = False

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.url)
        return parts.hostname or "", parts.port or 80

    def request(self, line: str, *headers: str, with_key: bool = True) -> bytes:
        key = (f"X-API-KEY: {self.key}" if self.is_e2b else f"Authorization: Bearer {self.key}") if with_key else "X: x"
        return "\r\n".join((f"{line} HTTP/1.1", f"Host: {self.address[0]}", key, *headers, "", "")).encode()

    @property
    def opening(self) -> str:
        return "POST /sandboxes" if self.is_e2b else "POST /v1/sandboxes"

    @property
    def listing(self) -> str:
        return "GET /v2/sandboxes" if self.is_e2b else "GET /v1/sandboxes"


Flood = Callable[[Victim, int], AbstractAsyncContextManager[None]]


@asynccontextmanager
async def idle_connections(victim: Victim, count: int) -> AsyncIterator[None]:
    """Connections that never ask for anything. Those that the server has closed are made again."""
    async with _held(victim, count, lambda: b""):
        yield


@asynccontextmanager
async def slow_headers(victim: Victim, count: int) -> AsyncIterator[None]:
    """Slowloris: headers that go on for ever."""
    async with _held(victim, count, lambda: b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: a", piece=b"a"):
        yield


@asynccontextmanager
async def slow_bodies(victim: Victim, count: int) -> AsyncIterator[None]:
    """Bodies that go on for ever, of requests with a key."""
    begin = victim.request(victim.opening, "Content-Type: application/json", "Content-Length: 100000")
    async with _held(victim, count, lambda: begin, piece=b" "):
        yield


@asynccontextmanager
async def large_bodies(victim: Victim, count: int) -> AsyncIterator[None]:
    """Bodies without an end, as fast as they are taken."""
    head = victim.request(victim.opening, "Content-Type: application/json", "Transfer-Encoding: chunked")
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"

    async def one() -> None:
        reader, writer = await asyncio.open_connection(*victim.address)
        with closing(writer):
            writer.write(head)
            while not reader.at_eof() and not writer.is_closing():
                writer.write(chunk)
                await _sent(writer)

    async with _repeated(one, count):
        yield


@asynccontextmanager
async def pipelined(victim: Victim, count: int) -> AsyncIterator[None]:
    """Many requests in one piece, answers not waited for."""
    piece = victim.request(victim.listing) * _PIPELINED

    async def one() -> None:
        _, writer = await asyncio.open_connection(*victim.address)
        with closing(writer):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(_PAUSE_SECONDS)

    async with _repeated(one, count):
        yield


@asynccontextmanager
async def websocket_openings(victim: Victim, count: int) -> AsyncIterator[None]:
    """WebSockets without a key."""

    async def one() -> None:
        _, writer = await _open_websocket(victim, with_key=False)
        writer.close()

    async with _repeated(one, count):
        yield


@asynccontextmanager
async def silent_websockets(victim: Victim, count: int) -> AsyncIterator[None]:
    """WebSockets with a key, that never say what they want."""
    async with _held(victim, count, lambda: _upgrade(victim, with_key=True)):
        yield


@asynccontextmanager
async def pings(victim: Victim, count: int) -> AsyncIterator[None]:
    """Pings whose answers are never read."""
    piece = _frame(9, b"x" * 125) * _PINGS

    async def one() -> None:
        _, writer = await _open_websocket(victim, with_key=True)
        with closing(writer):
            while not writer.is_closing():
                writer.write(piece)
                await _sent(writer)

    async with _repeated(one, count):
        yield


@asynccontextmanager
async def frames(victim: Victim, count: int) -> AsyncIterator[None]:
    """Messages that mean nothing."""
    piece = b"".join(_frame(2, os.urandom(64)) for _ in range(_PINGS))

    async def one() -> None:
        reader, writer = await _open_websocket(victim, with_key=True)
        with closing(writer):
            writer.write(piece)
            await writer.drain()
            await reader.read()

    async with _repeated(one, count):
        yield


@asynccontextmanager
async def requests(victim: Victim, count: int) -> AsyncIterator[None]:
    """Requests one after another, beyond the quota."""
    async with _asked(victim, count, victim.listing):
        yield


@asynccontextmanager
async def openings(victim: Victim, count: int) -> AsyncIterator[None]:
    """Sandboxes, beyond the quota."""
    async with _asked(victim, count, victim.opening, {} if not victim.is_e2b else {"templateID": "base"}):
        yield


def running(code: str) -> Flood:
    """Programs that take what they can get, one after another in a sandbox of the tenant."""

    @asynccontextmanager
    async def flood(victim: Victim, count: int) -> AsyncIterator[None]:
        place = f"/v1/sandboxes/{await _opened(victim)}"
        try:
            async with _asked(victim, count, f"POST {place}/runs", {"code": code}):
                yield
        finally:
            reader, writer = await asyncio.open_connection(*victim.address)
            await _answer(reader, writer, victim, f"DELETE {place}", None)
            writer.close()

    return flood


async def _opened(victim: Victim) -> str:
    """A sandbox; a tenant that has just flooded the server with requests has to wait a little for it."""
    async with asyncio.timeout(20):
        while True:
            reader, writer = await asyncio.open_connection(*victim.address)
            answer = json.loads(await _answer(reader, writer, victim, "POST /v1/sandboxes", {}))
            writer.close()
            if "id" in answer:
                return answer["id"]
            await asyncio.sleep(0.2)


FORKS = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"
OUTPUT = "import os\nwhile True: os.write(1, b'x' * 65536)"
MEMORY = "data = []\nwhile True: data.append(bytearray(1 << 20))"
FILES = "while True:\n    with open('x', 'wb') as f:\n        for _ in range(64): f.write(bytes(1 << 20))"
FLOODS: dict[str, tuple[Flood, int]] = {
    "idle connections": (idle_connections, 2500),
    "slow headers": (slow_headers, 2500),
    "slow bodies": (slow_bodies, 600),
    "bodies without an end": (large_bodies, 8),
    "pipelined requests": (pipelined, 8),
    "WebSockets without a key": (websocket_openings, 8),
    "WebSockets that say nothing": (silent_websockets, 600),
    "pings": (pings, 8),
    "meaningless messages": (frames, 8),
    "requests beyond the quota": (requests, 8),
    "fork bombs": (running(FORKS), 2),
    "output without an end": (running(OUTPUT), 2),
    "memory without an end": (running(MEMORY), 2),
    "large files": (running(FILES), 2),
    # The last, since it leaves its tenant without openings for a minute.
    "openings beyond the quota": (openings, 8),
}
"""By name, and how many at once."""


@contextmanager
def flooding(name: str, victim: Victim, count: int | None = None) -> Iterator[None]:
    """The block begins when the flood has."""
    words = [name, victim.url, victim.key, str(int(victim.is_e2b)), str(count or FLOODS[name][1])]
    command = [sys.executable, "-m", "benchmarks.floods", *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=_ROOT) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            if process.stdout.readline() != b"up\n":
                raise RuntimeError(f"the flood of {name} did not begin")
            yield
        finally:
            process.kill()


OF_PROGRAMS = ("fork bombs", "output without an end", "memory without an end", "large files")
OF_CHANNELS = ("WebSockets without a key", "WebSockets that say nothing", "pings", "meaningless messages")


@asynccontextmanager
async def _asked(victim: Victim, count: int, line: str, body: dict[str, str] | None = None) -> AsyncIterator[None]:
    async def one() -> None:
        reader, writer = await asyncio.open_connection(*victim.address)
        with closing(writer):
            while True:
                await _answer(reader, writer, victim, line, body)

    async with _repeated(one, count):
        yield


async def _answer(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, victim: Victim, line: str, body: dict[str, str] | None
) -> bytes:
    data = b"" if body is None else json.dumps(body).encode()
    writer.write(victim.request(line, "Content-Type: application/json", f"Content-Length: {len(data)}") + data)
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    size = head.partition(b"content-length: ")[2].partition(b"\r\n")[0]
    return await reader.readexactly(int(size or 0))


@asynccontextmanager
async def _held(victim: Victim, count: int, begin: Callable[[], bytes], piece: bytes = b"") -> AsyncIterator[None]:
    """`count` connections that are kept, and given a little from time to time; the block begins when all are there."""
    kept = await asyncio.to_thread(lambda: [_connected(victim, begin()) for _ in range(count)])

    async def one() -> None:
        for place, connection in enumerate(kept):
            if not _goes_on(connection, piece):
                connection.close()
                kept[place] = await asyncio.to_thread(_connected, victim, begin())
        await asyncio.sleep(_PAUSE_SECONDS)

    try:
        async with _repeated(one, 1):
            yield
    finally:
        for connection in kept:
            connection.close()


def _connected(victim: Victim, begin: bytes) -> socket.socket:
    connection = socket.create_connection(victim.address, timeout=30)
    connection.sendall(begin)
    connection.setblocking(False)
    return connection


def _goes_on(connection: socket.socket, piece: bytes) -> bool:
    """Whether the server still has it, after one more piece."""
    try:
        if piece:
            connection.send(piece)
        return connection.recv(65536) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


@asynccontextmanager
async def _repeated(one: Callable[[], Coroutine[Any, Any, None]], count: int) -> AsyncIterator[None]:
    """`count` at once, each again and again until the block ends, whatever the server does to it."""

    async def forever() -> None:
        while True:
            try:
                await one()
            except (OSError, asyncio.IncompleteReadError, ValueError):
                await asyncio.sleep(0.01)

    tasks = [asyncio.ensure_future(forever()) for _ in range(count)]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _sent(writer: asyncio.StreamWriter) -> None:
    """Others go on meanwhile, also when there is room at once."""
    await writer.drain()
    await asyncio.sleep(0)


async def _open_websocket(victim: Victim, *, with_key: bool) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(*victim.address)
    writer.write(_upgrade(victim, with_key=with_key))
    await reader.readuntil(b"\r\n\r\n")
    return reader, writer


def _upgrade(victim: Victim, *, with_key: bool) -> bytes:
    token = base64.b64encode(os.urandom(16)).decode()
    return victim.request(
        "GET /v1/channel",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        f"Sec-WebSocket-Key: {token}",
        with_key=with_key,
    )


def _frame(opcode: int, payload: bytes) -> bytes:
    """Whole, of a client: masked, with a mask of zeros."""
    size = bytes([0x80 | len(payload)]) if len(payload) < 126 else bytes([0xFE]) + len(payload).to_bytes(2, "big")
    return bytes([0x80 | opcode]) + size + bytes(4) + payload


async def _flood(name: str, url: str, key: str, is_e2b: str, count: str) -> None:
    async with FLOODS[name][0](Victim(url, key, is_e2b == "1"), int(count)):
        print("up", flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_flood(*sys.argv[1:]))
