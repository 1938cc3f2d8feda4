"""Bytes that are passed on unseen: all of them, in order, to whom they belong, and not too many at a time."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from fumehood.egress import relay
from fumehood.egress.relay import Buffer, Relay

pytestmark = pytest.mark.anyio

MIB = 1024 * 1024


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Line:
    """A client and a server with a relay between them."""

    def __init__(self, buffer: Buffer, *, allowed: int = 1 << 40) -> None:
        self.client, near = socket.socketpair()
        self.server, far = socket.socketpair()
        for end in (self.client, near, self.server, far):
            end.setblocking(False)
        self.counted: list[int] = []
        self.ends: list[Exception | None] = []
        self._between = (near, far)
        self.relay = Relay(
            near,
            far,
            buffer,
            allowance=lambda wanted: min(wanted, allowed),
            count=self.counted.append,
            on_end=self.ends.append,
        )
        self.relay.start()

    def close(self) -> None:
        self.relay.finish()
        for end in (self.client, self.server, *self._between):
            end.close()


Opener = Callable[..., Line]


@pytest.fixture
def open_line() -> Iterator[Opener]:
    with ExitStack() as stack:

        def open_one(buffer: Buffer, **options: int) -> Line:
            line = Line(buffer, **options)
            stack.callback(line.close)
            return line

        yield open_one


async def receive(end: socket.socket, size: int, pause: float = 0.0) -> bytes:
    loop, data = asyncio.get_running_loop(), b""
    while len(data) < size and (piece := await loop.sock_recv(end, 100_000)):
        data += piece
        await asyncio.sleep(pause)
    return data


async def flood(end: socket.socket, data: bytes) -> None:
    await asyncio.get_running_loop().sock_sendall(end, data)
    end.shutdown(socket.SHUT_WR)


async def settled(buffer: Buffer) -> int:
    """What waits when nothing moves any more."""
    before = -1
    while before != buffer.waiting_bytes:
        before = buffer.waiting_bytes
        await asyncio.sleep(0.05)
    return before


async def test_everything_arrives_in_order_both_ways_and_so_does_the_end(open_line: Opener) -> None:
    line, there, back = open_line(Buffer()), random.randbytes(5 * MIB), random.randbytes(3 * MIB)
    sending = asyncio.gather(flood(line.client, there), flood(line.server, back))
    arrived = await asyncio.gather(receive(line.server, len(there) + 1), receive(line.client, len(back) + 1, 0.001))
    await sending
    assert arrived == [there, back]
    assert line.ends == [None]
    assert sum(line.counted) == len(there) + len(back)


async def test_what_waits_for_a_slow_reader_is_not_overwritten_by_others(open_line: Opener) -> None:
    buffer = Buffer()
    slow, quick = open_line(buffer), open_line(buffer)
    first, second = random.randbytes(4 * MIB), random.randbytes(4 * MIB)
    sending = asyncio.ensure_future(flood(slow.server, first))
    assert await settled(buffer)
    passing = asyncio.ensure_future(flood(quick.server, second))
    assert await receive(quick.client, len(second)) == second
    assert await receive(slow.client, len(first)) == first
    await asyncio.gather(sending, passing)
    assert buffer.waiting_bytes == 0


@pytest.mark.parametrize("allowed", [1, 7, 5000])
async def test_no_more_is_taken_than_is_allowed(open_line: Opener, allowed: int) -> None:
    line = open_line(Buffer(), allowed=allowed)
    await asyncio.get_running_loop().sock_sendall(line.server, bytes(20_000))
    await receive(line.client, 20_000)
    assert max(line.counted) == allowed


async def test_readers_that_do_not_read_hold_up_little_memory(
    open_line: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "_MUCH_WAITING_BYTES", 2 * MIB)
    buffer = Buffer()
    lines = [open_line(buffer) for _ in range(60)]
    sending = [asyncio.ensure_future(flood(line.server, bytes(4 * MIB))) for line in lines]
    waiting = await settled(buffer)
    for task in sending:
        task.cancel()
    largest = 212_992  # what one of these sockets takes at a time
    assert 2 * MIB < waiting < 2 * MIB + largest + len(lines) * relay._SMALL_BYTES  # pyright: ignore[reportPrivateUsage]
    for line in lines:
        line.relay.finish()
    assert buffer.waiting_bytes == 0
