"""Threads of which each tenant has a few at once."""

from __future__ import annotations

import asyncio
import threading

import pytest

from fumehood.server.tenant_threads import TenantThreads

pytestmark = pytest.mark.anyio


async def test_a_tenant_whose_work_blocks_holds_up_itself_alone() -> None:
    threads, gate, begun = TenantThreads("tests", most=4, most_of_tenant=3), threading.Event(), list[int]()

    def block(number: int) -> None:
        begun.append(number)
        gate.wait()

    blocked = [asyncio.ensure_future(threads.run("slow", lambda number=number: block(number))) for number in range(20)]
    try:
        async with asyncio.timeout(20):
            assert await threads.run("other", lambda: 42) == 42
        assert len(begun) <= 3
        assert not any(each.done() for each in blocked)
    finally:
        gate.set()
    await asyncio.gather(*blocked)
    assert sorted(begun) == list(range(20))


async def test_work_whose_caller_is_gone_still_counts() -> None:
    threads, gate, begun = TenantThreads("tests", most=4, most_of_tenant=1), threading.Event(), threading.Event()

    def block() -> None:
        begun.set()
        gate.wait()

    first = asyncio.ensure_future(threads.run("a", block))
    await asyncio.to_thread(begun.wait)
    first.cancel()
    second = asyncio.ensure_future(threads.run("a", lambda: 2))
    try:
        assert (await asyncio.wait([first, second], timeout=0.5))[0] == set()  # a thread cannot be cancelled
        assert await threads.run("b", lambda: 3) == 3
    finally:
        gate.set()
    assert await second == 2
    await asyncio.gather(first, return_exceptions=True)
    assert first.cancelled()
