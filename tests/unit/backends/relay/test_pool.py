"""When the pool of containers starts one ahead. That a spare is as new is tests/live/test_docker.py's."""

from __future__ import annotations

from typing import cast

import pytest

from fumehood.backends.docker.container import Container
from fumehood.backends.relay import pool

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


async def test_none_is_started_that_would_be_thrown_away_before_the_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "SPARE_SECONDS", 0.0)
    assert await started_after_taking(3) == 3
