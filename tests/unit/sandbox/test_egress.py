"""Which RunEgress a run has, and which denials its result holds."""

from __future__ import annotations

import socket
import subprocess
import sys
from dataclasses import replace

import pytest

from fumehood.audit.events import CanarySeen, EgressAllowed, EgressDenied
from fumehood.egress.log import EgressFailure
from fumehood.policy.egress import AllowedAttempt
from fumehood.results import Denial
from fumehood.sandbox.egress import RunNetwork, SandboxNetwork
from fumehood.secret_scan.canaries import CanaryAlert

pytestmark = pytest.mark.anyio

A = Denial("dns", "dns a.example", "no rule opens this name")
B = Denial("dns", "dns b.example", "no rule opens this name")


class FakeRunEgress:
    """A RunEgress whose records the test writes."""

    def __init__(self) -> None:
        self.refused: dict[Denial, int] = {}
        self.let_through: dict[AllowedAttempt, int] = {}
        self.seen: list[CanaryAlert] = []
        self.is_over = False

    def refuse(self, denial: Denial) -> None:
        self.refused[denial] = self.refused.get(denial, 0) + 1

    def denials(self) -> tuple[Denial, ...]:
        return tuple(replace(denial, count=count) for denial, count in self.refused.items())

    def allow(self, allowed_attempt: AllowedAttempt) -> None:
        self.let_through[allowed_attempt] = self.let_through.get(allowed_attempt, 0) + 1

    def allowed(self) -> tuple[AllowedAttempt, ...]:
        return tuple(replace(allowed_attempt, count=count) for allowed_attempt, count in self.let_through.items())

    def alerts(self) -> tuple[CanaryAlert, ...]:
        return tuple(self.seen)

    def failures(self) -> tuple[EgressFailure, ...]:
        return ()

    def end(self) -> tuple[Denial, ...]:
        self.is_over = True
        return self.denials()

    def receive_listeners(self, channel: socket.socket) -> None: ...

    def serve(self, connection: socket.socket, destination: tuple[str, int]) -> None: ...

    def answer(self, query: bytes) -> bytes | None: ...


class FakeSandboxEgress:
    ports = (53, 443)
    trust = b"whom"

    def __init__(self) -> None:
        self.runs: list[FakeRunEgress] = []

    def environment(self, trust_path: str) -> dict[str, str]:
        return {"SSL_CERT_FILE": trust_path}

    def open_run(self, run_id: str) -> FakeRunEgress:
        self.runs.append(FakeRunEgress())
        return self.runs[-1]


async def test_each_run_has_a_visit_of_its_own() -> None:
    egress = FakeSandboxEgress()
    network = SandboxNetwork(egress, is_shared=False)
    async with network.open_run("one") as one, network.open_run("two") as two:
        egress.runs[0].refuse(A)
        egress.runs[1].refuse(B)
        assert (one.news().denials, two.news().denials) == ((A,), (B,))
        assert one.endpoint is not None
        assert one.endpoint.environment == {"SSL_CERT_FILE": "/run/trust.pem"}
    assert [run.is_over for run in egress.runs] == [True, True]


async def test_runs_that_cannot_be_told_apart_share_one_and_each_is_told_what_was_refused_while_it_ran() -> None:
    egress = FakeSandboxEgress()
    network = SandboxNetwork(egress, is_shared=True)
    async with network.open_run("one") as one:
        egress.runs[0].refuse(A)
        async with network.open_run("two") as two:
            egress.runs[0].refuse(A)
            egress.runs[0].refuse(B)
        assert not egress.runs[0].is_over
        egress.runs[0].refuse(B)
        assert one.news().denials == (replace(A, count=2), replace(B, count=2))
        assert two.news().denials == (A, B)
    assert egress.runs[0].is_over
    async with network.open_run("three"):
        assert len(egress.runs) == 2


async def test_a_session_is_told_after_each_run_what_is_new() -> None:
    egress = FakeSandboxEgress()
    async with SandboxNetwork(egress, is_shared=False).open_run("session") as network:
        egress.runs[0].refuse(A)
        assert network.news().denials == (A,)
        assert network.news().denials == ()
        egress.runs[0].refuse(A)
    assert network.news().denials == (A,)
    assert network.news().denials == ()


async def test_who_follows_is_told_all_that_happened_since_also_when_it_is_over() -> None:
    egress, allowed_attempt = (
        FakeSandboxEgress(),
        AllowedAttempt("connect", "connect a.example:443", "network.allow[0]"),
    )
    async with SandboxNetwork(egress, is_shared=False).open_run("session") as network:
        run = egress.runs[0]
        run.allow(allowed_attempt)
        run.refuse(A)
        told = network.follow()
        assert list(told()) == []
        run.allow(allowed_attempt)
        run.allow(allowed_attempt)
        run.refuse(B)
        run.seen.append(CanaryAlert("billing", "a.example:443"))
    run.refuse(B)
    assert list(told()) == [
        EgressAllowed("connect", "connect a.example:443", "network.allow[0]", 2),
        EgressDenied("dns", "dns b.example", "no rule opens this name", None, 1),
        CanarySeen("billing", "a.example:443"),
    ]


async def test_who_stays_at_home_is_refused_nothing() -> None:
    assert RunNetwork().news().denials == ()


def test_a_sandbox_without_rules_has_no_gateway() -> None:
    code = (
        "import fumehood, sys, threading; fumehood.run('print(1)'); "
        "print([name for name in sys.modules if name.startswith('fumehood.egress')], "
        "[thread.name for thread in threading.enumerate() if 'fumehood' in thread.name])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said == "[] ['fumehood']\n"  # the loop of blocking calls
