"""When the pool of containers starts one ahead. That a spare is as new is tests/live/test_docker.py's."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from fumehood.backends.docker.container import Container
from fumehood.backends.relay import pool
from fumehood.errors import StepFailedError

pytestmark = pytest.mark.anyio


class Design:
    """Counts what was started of it."""

    def __init__(self) -> None:
        self.started = 0

    async def start(self) -> Container:
        self.started += 1
        return cast("Container", self)

    async def rest(self) -> None:
        """As it is."""

    async def answers(self) -> bool:
        return True

    async def close(self) -> None:
        self.started -= 1


async def started_after_taking(times: int) -> int:
    """How many there were, with those that are spare, before all of them were closed."""
    design, containers = Design(), pool.GuestPool[Container]()
    for _ in range(times):
        await containers.take("a policy", design.start)
    for refill in list(containers._refills):  # pyright: ignore[reportPrivateUsage]
        await refill
    started = design.started
    await containers.close()
    assert design.started == times
    return started


@pytest.mark.parametrize(("times", "started"), [(1, 1), (2, 3)])
async def test_one_is_started_ahead_from_the_second_time_on(times: int, started: int) -> None:
    assert await started_after_taking(times) == started


class Restless(Design):
    async def rest(self) -> None:
        if self.started > 2:
            raise StepFailedError("resting", "it does not stop")


async def test_a_spare_that_does_not_rest_is_closed_and_not_forgotten() -> None:
    """A guest that does not do as it is told is one more process on the host, which nobody would ever end."""
    design, guests = Restless(), pool.GuestPool[Container]()
    for _ in range(2):
        await guests.take("a policy", design.start)
    await asyncio.gather(*guests._refills)  # pyright: ignore[reportPrivateUsage]
    await guests.close()
    assert design.started == 2


async def test_none_is_started_that_would_be_thrown_away_before_the_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "SPARE_SECONDS", 0.0)
    assert await started_after_taking(3) == 3
