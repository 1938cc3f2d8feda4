"""What the native backend keeps from one sandbox to the next."""

from __future__ import annotations

import pytest

from fumehood import Policy, UnenforceableError
from fumehood.backends.interface import EnforcementReport, PackageFolder
from fumehood.backends.native import enforcement
from fumehood.backends.native.backend import NativeBackend
from fumehood.backends.native.host_facts import HostFacts, detect


class Decisions:
    """Counts how often an enforcement report is made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self._decide = enforcement.decide
        monkeypatch.setattr(enforcement, "decide", self.decide)

    def decide(
        self,
        policy: Policy,
        facts: HostFacts,
        packages: PackageFolder | None = None,
        *,
        mounts_are_searched: bool = True,
    ) -> EnforcementReport:
        self.count += 1
        return self._decide(policy, facts, packages, mounts_are_searched=mounts_are_searched)


def test_a_report_is_made_once_for_each_meaning(monkeypatch: pytest.MonkeyPatch) -> None:
    backend, decisions = NativeBackend(detect()), Decisions(monkeypatch)
    for policy in (Policy(), Policy(), Policy(name="another"), Policy()):
        backend.check(policy)
    assert decisions.count == 1
    backend.check(Policy(resources={"cpu_time": "5s"}))
    assert decisions.count == 2


def test_a_policy_that_became_strict_is_decided_anew() -> None:
    """RLIMIT_CPU is a weaker limit than was asked for, everywhere."""
    backend = NativeBackend(detect())
    limits = {"cpu_time": "5s"}
    backend.check(Policy(resources=limits))
    with pytest.raises(UnenforceableError, match="cpu_time"):
        backend.check(Policy(resources=limits, strict=True))


def test_a_refusal_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    backend, decisions = NativeBackend(detect()), Decisions(monkeypatch)
    policy = Policy(resources={"cpu_time": "5s"}, strict=True)
    for _ in range(2):
        with pytest.raises(UnenforceableError):
            backend.check(policy)
    assert decisions.count == 2


def test_reports_do_not_accumulate(monkeypatch: pytest.MonkeyPatch) -> None:
    backend, decisions = NativeBackend(detect()), Decisions(monkeypatch)
    for count in range(300):
        backend.check(Policy(resources={"processes": count + 1}))
    assert decisions.count == 300
    assert len(backend._reports) < 300  # pyright: ignore[reportPrivateUsage]
