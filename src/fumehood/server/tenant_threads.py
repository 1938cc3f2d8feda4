"""Threads for work that blocks, of which each tenant has a few at once: one that is slow holds up itself alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")


class TenantThreads:
    """`most` threads in all, `most_of_tenant` of them for one tenant. Used in one event loop at a time."""

    def __init__(self, name: str, most: int, most_of_tenant: int) -> None:
        self._pool = ThreadPoolExecutor(most, f"fumehood-{name}")
        self._most_of_tenant = most_of_tenant
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def run(self, tenant: str, work: Callable[[], T]) -> T:
        turn = self._turns.get(tenant) or self._turns.setdefault(tenant, asyncio.Semaphore(self._most_of_tenant))
        async with turn:
            working = asyncio.get_running_loop().run_in_executor(self._pool, work)
            try:
                return await asyncio.shield(working)
            except asyncio.CancelledError:
                await asyncio.wait([working])  # a thread cannot be cancelled, and the next one waits for it
                raise
