"""Runs that may go out: who stands behind their doors, and what was refused there.

Where a backend can tell runs apart, each has a visit to the gateway of its own. Where it cannot, runs that are under
way at the same time share one, and each of them is told of what was refused while it ran.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Protocol, TypeVar

import anyio
import anyio.to_thread

from fumehood.backends.interface import Doorway, Visit
from fumehood.guest.rootfs import TRUST_FILE
from fumehood.results import Denial

T = TypeVar("T")


class GatewayVisit(Visit, Protocol):
    """As the gateway has it."""

    def denials(self) -> tuple[Denial, ...]:
        """What was refused so far; the same things are counted."""
        ...

    def end(self) -> tuple[Denial, ...]:
        """Everything that goes out by it is closed; what was refused in all."""
        ...


class GatewayPass(Protocol):
    """A sandbox's way out, as the gateway grants it."""

    @property
    def ports(self) -> tuple[int, ...]: ...

    @property
    def trust(self) -> bytes: ...

    def environment(self, trust_path: str) -> Mapping[str, str]: ...

    def visit(self, run_id: str) -> GatewayVisit: ...


class Outing:
    """One run's, or one session's. Without a doorway it stays at home."""

    def __init__(self, doorway: Doorway | None = None, visit: GatewayVisit | None = None) -> None:
        self.doorway = doorway
        self._visit = visit
        self._told: tuple[Denial, ...] = visit.denials() if visit else ()
        self._final: tuple[Denial, ...] | None = None if visit else ()

    def news(self) -> tuple[Denial, ...]:
        """What was refused since the last time, also when it is over already."""
        before, self._told = self._told, self._denials()
        return tuple(_since(before, self._told))

    def settle(self) -> None:
        """It is over: what is refused to others from here on is none of its."""
        self._final = self._denials()

    def _denials(self) -> tuple[Denial, ...]:
        if self._final is not None or self._visit is None:
            return self._final or ()
        return self._visit.denials()


class Outings:
    """Of one sandbox."""

    def __init__(self, granted: GatewayPass, *, is_shared: bool) -> None:
        self._pass = granted
        self._is_shared = is_shared
        self._shared: GatewayVisit | None = None
        self._travellers = 0

    @asynccontextmanager
    async def outing(self, name: str) -> AsyncIterator[Outing]:
        """For as long as the run lives. What it still has open is closed at the end."""
        visit = self._enter(name)
        environment = self._pass.environment(TRUST_FILE)
        outing = Outing(Doorway(self._pass.ports, environment, self._pass.trust, visit), visit)
        try:
            yield outing
        finally:
            outing.settle()
            await self._leave(visit)

    def _enter(self, name: str) -> GatewayVisit:
        visit = self._shared or self._pass.visit(name)
        self._travellers += 1
        if self._is_shared:
            self._shared = visit
        return visit

    async def _leave(self, visit: GatewayVisit) -> None:
        self._travellers -= 1
        if self._shared is None or self._travellers == 0:
            self._shared = None
            await wait_for_gateway(visit.end)


async def wait_for_gateway(work: Callable[[], T]) -> T:
    """It has a thread of its own, and whoever waits for that must not keep an event loop waiting."""
    results: list[T] = []
    with anyio.CancelScope(shield=True):
        results.append(await anyio.to_thread.run_sync(work))
    return results[0]


def _since(before: Iterable[Denial], now: Iterable[Denial]) -> Iterator[Denial]:
    counted = {replace(denial, count=0): denial.count for denial in before}
    for denial in now:
        new = denial.count - counted.get(replace(denial, count=0), 0)
        if new > 0:
            yield replace(denial, count=new)
