"""The threads in which pages read logs: some for all of them, a few at once for those of one log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from fumehood.server.tenant_threads import TenantThreads

T = TypeVar("T")
_THREADS = TenantThreads("console", most=32, most_of_tenant=4)


class Blocking(Protocol):
    """Does work that blocks, beside the event loop."""

    async def __call__(self, work: Callable[[], T], /) -> T: ...


class LogThreads:
    """Of one log: of a tenant, or of one user."""

    def __init__(self, name: str) -> None:
        self._name = name

    async def __call__(self, work: Callable[[], T], /) -> T:
        return await _THREADS.run(self._name, work)
