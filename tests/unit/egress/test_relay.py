"""Bytes that are passed on unseen: all of them, in order, to whom they belong, and not too many at a time."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from fumehood.egress.limits import TINY_BYTES, GatewayMemory, SandboxMemory
from fumehood.egress.relay import Relay, RelayBuffer

pytestmark = pytest.mark.anyio

MIB = 1024 * 1024
BUFFER = RelayBuffer()


def make_memory(most: int = 64 * MIB, gateway: GatewayMemory | None = None) -> SandboxMemory:
    return SandboxMemory(most, gateway or GatewayMemory(64 * MIB))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Line:
    """A client and a server with a relay between them."""

    def __init__(self, memory: SandboxMemory, *, allowed: int = 1 << 40) -> None:
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
            BUFFER,
            memory,
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

        def open_one(memory: SandboxMemory, **options: int) -> Line:
            line = Line(memory, **options)
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


async def settled(memory: SandboxMemory) -> int:
    """What waits when nothing moves any more; something does."""
    seen = [-1, 0]
    while len(set(seen[-5:])) > 1 or not seen[-1]:
        await asyncio.sleep(0.05)
        seen.append(memory.held_bytes)
    return seen[-1]


async def test_everything_arrives_in_order_both_ways_and_so_does_the_end(open_line: Opener) -> None:
    line, there, back = open_line(make_memory()), random.randbytes(5 * MIB), random.randbytes(3 * MIB)
    sending = asyncio.gather(flood(line.client, there), flood(line.server, back))
    arrived = await asyncio.gather(receive(line.server, len(there) + 1), receive(line.client, len(back) + 1, 0.001))
    await sending
    assert arrived == [there, back]
    assert line.ends == [None]
    assert sum(line.counted) == len(there) + len(back)


async def test_what_waits_for_a_slow_reader_is_not_overwritten_by_others(open_line: Opener) -> None:
    memory = make_memory()
    slow, quick = open_line(memory), open_line(memory)
    first, second = random.randbytes(4 * MIB), random.randbytes(4 * MIB)
    sending = asyncio.ensure_future(flood(slow.server, first))
    assert await settled(memory)
    passing = asyncio.ensure_future(flood(quick.server, second))
    assert await receive(quick.client, len(second)) == second
    assert await receive(slow.client, len(first)) == first
    await asyncio.gather(sending, passing)
    assert memory.held_bytes == 0


@pytest.mark.parametrize("allowed", [1, 7, 5000])
async def test_no_more_is_taken_than_is_allowed(open_line: Opener, allowed: int) -> None:
    line = open_line(make_memory(), allowed=allowed)
    await asyncio.get_running_loop().sock_sendall(line.server, bytes(20_000))
    await receive(line.client, 20_000)
    assert max(line.counted) == allowed


LARGEST = 212_992
"""What one of these sockets takes at a time."""


async def test_readers_that_do_not_read_hold_no_more_together_than_their_sandbox_may_and_all_arrives(
    open_line: Opener,
) -> None:
    memory, data = make_memory(2 * MIB), random.randbytes(MIB)
    lines = [open_line(memory) for _ in range(60)]
    sending = asyncio.gather(*(flood(line.server, data) for line in lines))
    assert MIB < await settled(memory) < 2 * MIB + LARGEST + len(lines) * TINY_BYTES
    for line in lines:  # one after the other: what others hold stops none
        assert await receive(line.client, len(data)) == data
    await sending
    assert memory.held_bytes == 0


async def test_sandboxes_hold_no_more_together_than_the_gateway_may(open_line: Opener) -> None:
    gateway = GatewayMemory(2 * MIB)
    memories = [make_memory(8 * MIB, gateway) for _ in range(3)]
    lines = [open_line(memory) for memory in memories for _ in range(30)]
    sending = [asyncio.ensure_future(flood(line.server, bytes(4 * MIB))) for line in lines]
    for memory in memories:
        await settled(memory)
    assert MIB < gateway.held_bytes < 2 * MIB + LARGEST + len(lines) * TINY_BYTES
    for task in sending:
        task.cancel()
    for line in lines:
        line.relay.finish()
    assert gateway.held_bytes == 0
