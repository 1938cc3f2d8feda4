"""Real stores, logs and calls for tests, in folders of their own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fumehood import Policy
from fumehood.audit import AuditLog, Query, Trail
from fumehood.tools.approvals import ApprovalRequest, ApprovalStore
from fumehood.tools.approvals.requests import Moment, Question
from fumehood.tools.calls import ToolCall

POLICY = Policy(name="careful", approvals=[{"tool": "*", "expires": "10m"}])


def call(code: str = "print(1)", policy: Policy = POLICY, **more: object) -> ToolCall:
    return ToolCall("python", {"code": code, **more}, policy.digest, code="code", language="python")


@dataclass
class Clocks:
    """Two clocks that a test sets."""

    wall: float = 1_000_000.0
    since_boot: float = 500.0
    boot: str = "first boot"

    def now(self) -> Moment:
        return Moment(self.wall, self.since_boot, self.boot)

    def pass_by(self, seconds: float) -> None:
        self.wall += seconds
        self.since_boot += seconds


@dataclass
class Office:
    """A store with clocks and an audit log."""

    folder: Path

    def __post_init__(self) -> None:
        self.clocks = Clocks()
        self.store = ApprovalStore(self.folder / "approvals", now=self.clocks.now)
        self.log = AuditLog.at(self.folder / "audit")
        self.trail = Trail(self.log, who="tester")

    def ask(self, wanted: ToolCall | None = None, policy: Policy = POLICY, seconds: float = 60) -> ApprovalRequest:
        return self.store.ask(Question(wanted or call(policy=policy), policy, seconds, "agent"), self.trail)

    def kinds(self) -> list[str]:
        return [record.kind for record in self.log.find(Query(kind="approval"))]

    def data(self, kind: str) -> list[dict[str, object]]:
        return [record.data for record in self.log.find(Query(kind=kind))]
