"""Talks to an engine from code that blocks, and stops when the caller wants to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from fumehood.backends.docker.engine import Engine
from fumehood.policy import Policy

T = TypeVar("T")
_HEARTBEAT_SECONDS = 0.1


def with_engine(policy: Policy, work: Callable[[Engine], Awaitable[T]], heartbeat: Callable[[], None]) -> T:
    """What `work` returns. Whatever `heartbeat` raises, several times a second, ends it."""
    return anyio.run(_with_engine, policy, work, heartbeat)


async def _with_engine(policy: Policy, work: Callable[[Engine], Awaitable[T]], heartbeat: Callable[[], None]) -> T:
    engine = Engine(policy.docker)
    task = asyncio.ensure_future(work(engine))
    try:
        while not task.done():
            await asyncio.wait({task}, timeout=_HEARTBEAT_SECONDS)
            heartbeat()
        return task.result()
    finally:
        task.cancel()
        await asyncio.wait({task})
        await engine.close()
