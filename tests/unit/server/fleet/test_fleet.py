"""When a server takes a worker for lost: not before that worker is sure to have ended what it has."""

# pyright: reportPrivateUsage=false, reportArgumentType=false

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from fumehood.cluster.authority import ClusterAuthority
from fumehood.cluster.claims import UserClaims
from fumehood.cluster.folder import SERVER_FILE
from fumehood.server.fleet.fleet import Fleet
from fumehood.server.fleet.known_worker import KnownWorker

ENTRY = {"epoch": 1, "slots": 9, "free": 9, "backends": ["native"], "warm": [], "labels": {}, "draining": False}


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    authority = ClusterAuthority.create(tmp_path / "authority", ["tls://127.0.0.1:1"])
    authority.make_member("server", "server").write(tmp_path / SERVER_FILE)
    made = Fleet(tmp_path, SimpleNamespace())
    claims = UserClaims("w1", "U", "A", frozenset())
    made._workers["w1"] = KnownWorker(claims, {**ENTRY, "client": 7, "version": "1"})
    return made


def closed(reason: str, *, number: int = 7) -> SimpleNamespace:
    event = {"client": {"name_tag": "w1", "id": number}, "reason": reason}
    return SimpleNamespace(data=json.dumps(event).encode())


@pytest.mark.parametrize(
    ("reason", "is_lost"),
    [
        ("Client Closed", True),
        ("Read Error", True),
        ("Stale Connection", False),
        ("Slow Consumer (Write Deadline)", False),
        ("Slow Consumer (Pending Bytes)", False),
        ("Server Shutdown", False),
    ],
)
def test_a_worker_that_may_live_is_lost_by_its_lease_alone(fleet: Fleet, reason: str, *, is_lost: bool) -> None:
    """Cut off, it has effects until it ends by itself; a caller who was told before would see one after the end."""
    fleet._on_disconnected(closed(reason))
    assert (fleet._workers["w1"].lost is not None) == is_lost


def test_an_earlier_connection_of_a_worker_says_nothing_of_it(fleet: Fleet) -> None:
    fleet._on_disconnected(closed("Client Closed", number=6))
    assert fleet._workers["w1"].lost is None
