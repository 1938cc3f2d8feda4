"""Which visit to the gateway a run has, and which refusals it is told of."""

from __future__ import annotations

import socket
import subprocess
import sys
from dataclasses import replace

import pytest

from fumehood.audit.events import CanarySeen, EgressAllowed, EgressDenied
from fumehood.policy.egress import AllowedAttempt
from fumehood.results import Denial
from fumehood.sandbox.egress import Outing, Outings
from fumehood.secret_scan.canaries import Alarm

pytestmark = pytest.mark.anyio

A = Denial("dns", "dns a.example", "no rule opens this name")
B = Denial("dns", "dns b.example", "no rule opens this name")


class Visited:
    """A visit that is told what became of it."""

    def __init__(self) -> None:
        self.refused: dict[Denial, int] = {}
        self.let_through: dict[AllowedAttempt, int] = {}
        self.seen: list[Alarm] = []
        self.is_over = False

    def refuse(self, denial: Denial) -> None:
        self.refused[denial] = self.refused.get(denial, 0) + 1

    def denials(self) -> tuple[Denial, ...]:
        return tuple(replace(denial, count=count) for denial, count in self.refused.items())

    def allow(self, passage: AllowedAttempt) -> None:
        self.let_through[passage] = self.let_through.get(passage, 0) + 1

    def passages(self) -> tuple[AllowedAttempt, ...]:
        return tuple(replace(passage, count=count) for passage, count in self.let_through.items())

    def alarms(self) -> tuple[Alarm, ...]:
        return tuple(self.seen)

    def end(self) -> tuple[Denial, ...]:
        self.is_over = True
        return self.denials()

    def attend(self, door: socket.socket) -> None: ...

    def serve(self, connection: socket.socket, destination: tuple[str, int]) -> None: ...

    def answer(self, query: bytes) -> bytes | None: ...


class Granted:
    ports = (53, 443)
    trust = b"whom"

    def __init__(self) -> None:
        self.visits: list[Visited] = []

    def environment(self, trust_path: str) -> dict[str, str]:
        return {"SSL_CERT_FILE": trust_path}

    def visit(self, run_id: str) -> Visited:
        self.visits.append(Visited())
        return self.visits[-1]


async def test_each_run_has_a_visit_of_its_own() -> None:
    granted = Granted()
    outings = Outings(granted, is_shared=False)
    async with outings.outing("one") as one, outings.outing("two") as two:
        granted.visits[0].refuse(A)
        granted.visits[1].refuse(B)
        assert (one.news(), two.news()) == ((A,), (B,))
        assert one.doorway is not None
        assert one.doorway.environment == {"SSL_CERT_FILE": "/run/trust.pem"}
    assert [visit.is_over for visit in granted.visits] == [True, True]


async def test_runs_that_cannot_be_told_apart_share_one_and_each_is_told_what_was_refused_while_it_ran() -> None:
    granted = Granted()
    outings = Outings(granted, is_shared=True)
    async with outings.outing("one") as one:
        granted.visits[0].refuse(A)
        async with outings.outing("two") as two:
            granted.visits[0].refuse(A)
            granted.visits[0].refuse(B)
        assert not granted.visits[0].is_over
        granted.visits[0].refuse(B)
        assert one.news() == (replace(A, count=2), replace(B, count=2))
        assert two.news() == (A, B)
    assert granted.visits[0].is_over
    async with outings.outing("three"):
        assert len(granted.visits) == 2


async def test_a_session_is_told_after_each_run_what_is_new() -> None:
    granted = Granted()
    async with Outings(granted, is_shared=False).outing("session") as outing:
        granted.visits[0].refuse(A)
        assert outing.news() == (A,)
        assert outing.news() == ()
        granted.visits[0].refuse(A)
    assert outing.news() == (A,)
    assert outing.news() == ()


async def test_who_follows_is_told_all_that_happened_since_also_when_it_is_over() -> None:
    granted, passage = Granted(), AllowedAttempt("connect", "connect a.example:443", "network.allow[0]")
    async with Outings(granted, is_shared=False).outing("session") as outing:
        visit = granted.visits[0]
        visit.allow(passage)
        visit.refuse(A)
        told = outing.follow()
        assert list(told()) == []
        visit.allow(passage)
        visit.allow(passage)
        visit.refuse(B)
        visit.seen.append(Alarm("billing", "a.example:443"))
    visit.refuse(B)
    assert list(told()) == [
        EgressAllowed("connect", "connect a.example:443", "network.allow[0]", 2),
        EgressDenied("dns", "dns b.example", "no rule opens this name", None, 1),
        CanarySeen("billing", "a.example:443"),
    ]


async def test_who_stays_at_home_is_refused_nothing() -> None:
    assert Outing().news() == ()


def test_a_sandbox_without_rules_has_no_gateway() -> None:
    code = (
        "import fumehood, sys, threading; fumehood.run('print(1)'); "
        "print([name for name in sys.modules if name.startswith('fumehood.egress')], "
        "[thread.name for thread in threading.enumerate() if 'fumehood' in thread.name])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said == "[] []\n"
