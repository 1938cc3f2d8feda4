"""What a worker answers to an opening: the sandbox that was asked for, or it is asked no more."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fumehood import Policy
from fumehood.cluster.claims import UserClaims
from fumehood.errors import LostError, QuotaError, SandboxError, UnenforceableError
from fumehood.guest.contract import frames
from fumehood.remote.calls import ask
from fumehood.remote.carrier import CarrierLostError
from fumehood.remote.failures import pack_failure
from fumehood.remote.policies import pack_policy
from fumehood.server.fleet import placed_connection
from fumehood.server.fleet.choice import SandboxNeeds
from fumehood.server.fleet.known_worker import KnownWorker
from fumehood.server.fleet.placed_connection import PlacedConnection

pytestmark = pytest.mark.anyio
ASKED = Policy()
WIDER = Policy(network={"allow": [{"host": "example.com", "ports": [443], "protocol": "tls"}]})
ENTRY = {"epoch": 1, "client": 1, "slots": 9, "free": 9, "backends": ["native"], "warm": [], "labels": {}}


class LyingCarrier:
    """The other end of an opening, which answers once and then is gone."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self._answers = [frames.encode(answer)]

    async def send(self, data: bytes) -> None:
        if not self._answers:
            raise CarrierLostError("gone")

    async def receive(self) -> bytes:
        if not self._answers:
            raise CarrierLostError("gone")
        return self._answers.pop()

    async def close(self) -> None:
        pass


class OneWorker:
    """A fleet of one. Meets `WorkerChooser`."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self.answer, self.settled = answer, 0
        self.worker = KnownWorker(UserClaims("w", "U", "A", frozenset()), {**ENTRY, "version": "1", "draining": False})

    async def candidates(self, needs: SandboxNeeds, refused: set[str]) -> list[KnownWorker]:
        return [self.worker]

    async def dial(self, worker: KnownWorker) -> Any:
        return LyingCarrier(self.answer)

    def settle(self, connection: PlacedConnection) -> None:
        self.settled += 1

    def release(self, connection: PlacedConnection) -> None:
        pass

    def note_failed(self, worker: KnownWorker, needs: SandboxNeeds, reason: str) -> None:
        pass


class SilentCarrier(LyingCarrier):
    """Answers the opening, and from then on what is put into it, if anything."""

    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__(answer)
        self.says: asyncio.Queue[bytes] = asyncio.Queue()

    async def send(self, data: bytes) -> None:
        pass

    async def receive(self) -> bytes:
        return self._answers.pop() if self._answers else await self.says.get()


class LivingWorker(OneWorker):
    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__(answer)
        self.carrier, self.released = SilentCarrier(answer), 0

    async def dial(self, worker: KnownWorker) -> Any:
        return self.carrier

    def release(self, connection: PlacedConnection) -> None:
        self.released += 1


class Account:
    """Of a tenant that may hold so much. Meets `MemoryAccount`."""

    def __init__(self, most: int) -> None:
        self.left = most

    def take(self, size: int) -> QuotaError | None:
        if size > self.left:
            return QuotaError("too much is held", quota="bodies_of_tenant", most=0, used=0, resets=None)
        self.left -= size
        return None

    def give(self, size: int) -> None:
        self.left += size


def opened(policy: Policy) -> dict[str, Any]:
    # It keeps no sandbox without a connection: the end of this one does not wait for it.
    return {"opened": {"sandbox": "s", "token": "t", "linger": -1, "policy": pack_policy(policy), "enforcement": {}}}


def connection(fleet: OneWorker, memory: Account | None = None) -> PlacedConnection:
    needs = SandboxNeeds("acme", ASKED.digest, "native")
    return PlacedConnection(fleet, needs, {}, lambda reason: None, memory or Account(1 << 30))


async def test_a_worker_that_names_another_policy_gets_no_sandbox() -> None:
    """Forks and the next use of a name would have it, and with it every secret of the tenant's that it names."""
    fleet = OneWorker(opened(WIDER))
    with pytest.raises(LostError, match="another policy"):
        await connection(fleet).open()
    assert (fleet.settled, fleet.worker.free) == (0, 9)
    honest = OneWorker(opened(ASKED))
    one = connection(honest)
    await one.open()
    await one.close()
    assert honest.settled == 1


@pytest.mark.parametrize("failure", ["x", None, {"kind": 1, "text": 2, "details": "x"}, {"details": {"": 1}}])
async def test_a_worker_whose_failure_has_another_form_fails_and_no_more(failure: object) -> None:
    with pytest.raises(SandboxError):
        await connection(OneWorker({"failed": failure})).open()


async def test_what_a_worker_cannot_enforce_names_the_worker_and_its_remedy() -> None:
    cannot = UnenforceableError("resources.memory", backend="native", reason="no cgroups", remedy="Run as root.")
    with pytest.raises(UnenforceableError, match=r"backend native: no cgroups, on worker w\. Run as root\."):
        await connection(OneWorker({"failed": pack_failure(cannot)})).open()


async def test_a_worker_that_does_not_answer_holds_up_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lease lives. The sandbox would count against its tenant for ever, and the server could not end."""
    monkeypatch.setattr(placed_connection, "CLOSE_SECONDS", 0.05)
    fleet = LivingWorker(opened(ASKED))
    one = connection(fleet)
    await one.open()
    async with asyncio.timeout(10):
        await one.close()
    assert fleet.released == 1


async def test_a_worker_that_does_not_answer_an_opening_is_left_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placed_connection, "_OPEN_SECONDS", 0.05)
    fleet = LivingWorker(opened(ASKED))
    fleet.carrier._answers.clear()  # pyright: ignore[reportPrivateUsage]
    async with asyncio.timeout(10):
        with pytest.raises(LostError, match="worker w has not answered"):
            await connection(fleet).open()
    assert (fleet.settled, fleet.worker.free) == (0, 9)


async def test_what_a_worker_sends_counts_in_the_memory_of_its_tenant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each sandbox it could be 96 MiB: of a tenant with workers of its own, all that the server has."""
    monkeypatch.setattr(placed_connection, "CLOSE_SECONDS", 0.05)
    fleet, account = LivingWorker(opened(ASKED)), Account(1 << 20)
    one = connection(fleet, account)
    await one.open()
    asking = asyncio.ensure_future(ask(one.conversations, {"do": "run"}))
    parts = 100
    for number in range(1, parts + 1):
        fleet.carrier.says.put_nowait(frames.encode({"n": number, "c": 1, "part": True}, bytes(60 * 1024)))
    end = {"n": parts + 1, "c": 1, "say": {}, "end": True}
    fleet.carrier.says.put_nowait(frames.encode(end))
    async with asyncio.timeout(10):
        with pytest.raises(QuotaError, match="too much is held"):
            await asking
    await one.close()
    assert account.left == 1 << 20
