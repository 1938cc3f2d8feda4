"""Sandboxes of a worker: each is known until it is gone; what a worker ends by itself, and what it does not begin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fumehood import Policy
from fumehood.cluster.hosted_sandbox import HostedSandbox
from fumehood.cluster.lease import LeaseTimes
from fumehood.cluster.opening import pack_opening
from fumehood.cluster.tenant_meter import LIMITS, WorkerMeter
from fumehood.cluster.worker_service import WorkerOffer, WorkerService
from fumehood.errors import DeniedError, UsageError
from fumehood.policy.secret import GivenSecrets
from fumehood.remote.connection import PROTOCOL
from fumehood.tenant import Tenant

pytestmark = pytest.mark.anyio
OWNER = ("server", "0a1b")
PLENTY = {str(name): 1e9 for name in LIMITS}


class EmptySlot(HostedSandbox):
    """Counts, and opens nothing."""

    async def open(self) -> None:
        pass

    async def _leave_once(self, error: BaseException | None) -> None:
        self._forget(self)


class SlotService(WorkerService):
    sandbox_type = EmptySlot


def header(folder: Path) -> dict[str, Any]:
    tenant = Tenant("acme", folder, GivenSecrets({}))
    limits = {str(name): 1.0 for name in LIMITS}
    return {**pack_opening("s1", "key:k", Policy(), tenant, limits), "epoch": 1, "protocol": PROTOCOL}


async def test_a_server_cannot_put_a_sandbox_in_the_place_of_anothers(tmp_path: Path) -> None:
    """The other one would go on unseen: no fence, no lost server and no end of the worker would find it."""
    service = SlotService("w", tmp_path, WorkerOffer(9, ("native",), {}, "1"), lambda: 1, LeaseTimes())
    await service._open(("s", "1"), header(tmp_path))  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(UsageError, match="already"):
        await service._open(("other", "2"), header(tmp_path))  # pyright: ignore[reportPrivateUsage]
    assert service.describe()["free"] == 8
    await service.close_all("fenced")
    assert service.describe()["free"] == 9


@pytest.mark.parametrize(("lease", "left"), [(1000.0, 1), (0.0, 0)], ids=["in time", "too late"])
async def test_a_server_that_ends_before_it_was_heard_leaves_nothing_behind(
    tmp_path: Path, lease: float, left: int
) -> None:
    """An opening says that its server lives, and is the last that is heard of some."""
    offer = WorkerOffer(4, ("native",), {}, "tests")
    service = SlotService("w1", tmp_path, offer, lambda: 1, LeaseTimes(lease))
    await service._open(OWNER, header(tmp_path))  # pyright: ignore[reportPrivateUsage]
    assert service.describe()["free"] == 3
    await service.close_abandoned()
    assert service.describe()["free"] == 4 - left


def test_nothing_begins_or_leaves_when_the_lease_is_over() -> None:
    is_fenced = False
    meter = WorkerMeter(lambda: is_fenced)
    meter.set_limits(PLENTY)
    meter.begin()
    assert meter.left_bytes() == 1e9
    is_fenced = True
    assert meter.left_bytes() < 0
    assert meter.refusal() == "the lease of the worker is over"
    with pytest.raises(DeniedError, match="the lease of the worker is over"):
        meter.begin()
