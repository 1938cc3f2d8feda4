"""What a worker answers to an opening: the sandbox that was asked for, or it is asked no more."""

from __future__ import annotations

from typing import Any

import pytest

from fumehood import Policy
from fumehood.cluster.claims import UserClaims
from fumehood.errors import LostError, SandboxError, UnenforceableError
from fumehood.guest.contract import frames
from fumehood.remote.carrier import CarrierLostError
from fumehood.remote.failures import pack_failure
from fumehood.remote.policies import pack_policy
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


def opened(policy: Policy) -> dict[str, Any]:
    # It keeps no sandbox without a connection: the end of this one does not wait for it.
    return {"opened": {"sandbox": "s", "token": "t", "linger": -1, "policy": pack_policy(policy), "enforcement": {}}}


def connection(fleet: OneWorker) -> PlacedConnection:
    return PlacedConnection(fleet, SandboxNeeds("acme", ASKED.digest, "native"), {}, lambda reason: None)


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
