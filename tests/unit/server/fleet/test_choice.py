"""Which workers are asked, and which openings wait how long."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from fumehood.cluster.claims import UserClaims
from fumehood.errors import SandboxError
from fumehood.server.fleet.choice import SandboxNeeds, rank_workers
from fumehood.server.fleet.fair_queue import FairQueue
from fumehood.server.fleet.known_worker import KnownWorker
from fumehood.server.fleet.poison import PoisonedPolicies
from fumehood.server.sandboxes.errors import NoCapacityError

NEEDS = SandboxNeeds("acme", "digest", "native")


ENTRY: dict[str, object] = {
    "epoch": 1,
    "client": 1,
    "slots": 10,
    "free": 10,
    "backends": ["native"],
    "warm": [],
    "labels": {},
    "version": "1",
    "draining": False,
}


def worker(name: str, *, tenants: tuple[str, ...] = (), **entry: object) -> KnownWorker:
    return KnownWorker(UserClaims(name, "U", "A", frozenset(tenants)), ENTRY | entry)


def names(workers: list[KnownWorker]) -> list[str]:
    return [each.name for each in workers]


@pytest.mark.parametrize(
    "other",
    [
        worker("other", draining=True),
        worker("other", free=0),
        worker("other", backends=["docker"]),
        worker("other", tenants=("globex",)),
    ],
)
def test_a_worker_that_cannot_take_it_is_not_asked(other: KnownWorker) -> None:
    assert names(rank_workers([other, worker("good", tenants=("acme",))], NEEDS)) == ["good"]


@pytest.mark.parametrize(
    "lie",
    [
        {"slots": 10**400, "free": 10**400},
        {"free": 11},
        {"free": -1},
        {"warm": list(range(1000))},
        {"labels": []},
        {"labels": {str(number): "" for number in range(1000)}},
    ],
)
def test_what_a_worker_says_of_itself_is_taken_whole_or_not_at_all(lie: dict[str, object]) -> None:
    """A room that no number is large enough for made every opening fail, at every tenant's."""
    known = worker("w", warm=["digest"])
    before = known.describe()
    with pytest.raises((ValueError, AttributeError)):
        known.update({**ENTRY, "client": 2, "version": "2", **lie})
    assert (known.describe(), known.client, known.warm) == (before, 1, {"digest"})
    assert names(rank_workers([known], NEEDS)) == ["w"]


def test_a_lost_worker_is_not_asked() -> None:
    lost = worker("lost")
    lost.lost = "it has ended"
    assert rank_workers([lost], NEEDS) == []


def test_a_warm_worker_is_asked_first_unless_it_is_nearly_full() -> None:
    cold, warm = worker("cold"), worker("warm", warm=["digest"])
    assert names(rank_workers([cold, warm], NEEDS)) == ["warm", "cold"]
    assert names(rank_workers([cold, worker("warm", warm=["digest"], free=1)], NEEDS)) == ["cold", "warm"]


def test_sandboxes_of_one_policy_meet_and_others_are_spread() -> None:
    workers = [worker(f"w{number}") for number in range(4)]
    homes = Counter(rank_workers(workers, SandboxNeeds("acme", f"d{n}", "auto"))[0].name for n in range(200))
    assert rank_workers(workers, NEEDS) == rank_workers(list(reversed(workers)), NEEDS)
    assert set(homes) == {"w0", "w1", "w2", "w3"}


def test_a_worker_on_which_openings_fail_leaves_rotation_and_says_why() -> None:
    bad = worker("bad")
    for _ in range(4):
        bad.note_failure("acme", "the disk is full")
    assert names(rank_workers([bad], NEEDS)) == ["bad"]
    bad.note_failure("acme", "the disk is full")
    assert rank_workers([bad], NEEDS) == []
    assert (bad.describe()["state"], bad.describe()["failure"]) == ("resting", "the disk is full")


def test_a_policy_that_fails_on_three_workers_is_refused_with_the_reason() -> None:
    poison = PoisonedPolicies()
    for name in ("w1", "w1", "w2"):
        poison.note(("acme", "digest"), name, "it cannot be built")
    poison.check(("acme", "digest"))
    poison.note(("acme", "digest"), "w3", "it cannot be built")
    with pytest.raises(SandboxError, match="it cannot be built"):
        poison.check(("acme", "digest"))
    poison.check(("acme", "another"))


def test_openings_of_one_tenant_that_fail_keep_nothing_from_others() -> None:
    """Its own quota may be the reason, and the policies that come with the package are every tenant's."""
    only, poison = worker("only"), PoisonedPolicies()
    for number in range(5):
        only.note_failure("acme", "the quota is used up")
        poison.note(("acme", "digest"), f"w{number}", "the quota is used up")
    assert rank_workers([only], NEEDS) == []
    assert names(rank_workers([only], SandboxNeeds("globex", "digest", "native"))) == ["only"]
    poison.check(("globex", "digest"))


pytestmark = pytest.mark.anyio


def needs(tenant: str, backend: str = "native") -> SandboxNeeds:
    return SandboxNeeds(tenant, "digest", backend)


def anything(wanted: SandboxNeeds) -> bool:
    return True


async def test_a_flood_of_one_tenant_delays_itself() -> None:
    """Behind a hundred openings of one tenant, one of another is second."""
    queue, order = FairQueue(), list[str]()

    async def open_one(tenant: str) -> None:
        await queue.wait(needs(tenant))
        order.append(tenant)

    flood = [asyncio.ensure_future(open_one("flood")) for _ in range(100)]
    await asyncio.sleep(0)
    other = asyncio.ensure_future(open_one("other"))
    await asyncio.sleep(0)
    queue.wake(2, anything)
    await other
    assert order == ["flood", "other"]
    queue.wake(99, anything)
    await asyncio.gather(*flood)
    assert len(queue) == 0


async def test_room_goes_to_the_first_that_can_use_it() -> None:
    queue = FairQueue()
    container = asyncio.ensure_future(queue.wait(needs("acme", "docker")))
    native = asyncio.ensure_future(queue.wait(needs("acme")))
    await asyncio.sleep(0)
    queue.wake(1, lambda wanted: wanted.backend == "native")
    await native
    assert not container.done()
    queue.wake(5, anything)
    await container


async def test_a_full_queue_and_a_long_wait_are_said() -> None:
    queue = FairQueue(most=1)
    waiting = asyncio.ensure_future(queue.wait(needs("acme"), 0.01))
    await asyncio.sleep(0)
    with pytest.raises(NoCapacityError, match="1 openings wait"):
        await queue.wait(needs("globex"))
    with pytest.raises(NoCapacityError, match="for some seconds"):
        await waiting
    assert len(queue) == 0


async def test_one_that_leaves_the_queue_takes_nobodys_turn() -> None:
    queue = FairQueue()
    first, second = (asyncio.ensure_future(queue.wait(needs("acme"))) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    queue.wake(1, anything)
    await second


async def test_one_that_found_its_room_taken_is_the_next_to_be_served() -> None:
    queue, served = FairQueue(), list[str]()

    async def ask(name: str, tenant: str, *, is_next: bool = False) -> None:
        await queue.wait(needs(tenant), is_next=is_next)
        served.append(name)

    tasks = [asyncio.ensure_future(ask(name, name[:-1])) for name in ("flood1", "flood2", "other1")]
    await asyncio.sleep(0)
    tasks.append(asyncio.ensure_future(ask("other0", "other", is_next=True)))
    await asyncio.sleep(0)
    for _ in range(4):
        queue.wake(1, lambda _: True)
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert served == ["other0", "flood1", "other1", "flood2"]
