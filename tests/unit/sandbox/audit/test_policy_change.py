"""A secret that has another value when the rules change is removed from the log as the one before is."""

from __future__ import annotations

from pathlib import Path

import pytest

from fumehood import AsyncSandbox, Policy
from fumehood.audit import AuditLog, Trail
from fumehood.audit.events import RunBroke
from fumehood.sandbox.audit import SandboxAudit

pytestmark = pytest.mark.anyio

OLD, NEW = "old-value-9f3ac71b", "new-value-08d4426b"
SECRET = {"name": "TOKEN", "from_env": "TOKEN", "inject": {"host": "api.example.com"}}
RULES = {"allow": [{"host": "api.example.com", "ports": [443]}]}


def content(log: AuditLog) -> bytes:
    return b"".join(file.read_bytes() for file in log.folder.iterdir())


async def test_every_trail_of_the_sandbox_knows_the_new_value_and_the_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, policy = AuditLog.at(tmp_path / "log"), Policy(secrets=[SECRET], network=RULES)
    monkeypatch.setenv("TOKEN", OLD)
    audit = SandboxAudit(log)
    async with audit.opening(policy) as trail:
        pass
    earlier = trail.within(run="run_1")
    monkeypatch.setenv("TOKEN", NEW)
    await audit.policy_changed(policy)
    monkeypatch.delenv("TOKEN")
    for each in (earlier, audit.trail, trail):
        await each.write(RunBroke(OLD, NEW))
    assert OLD.encode() not in content(log)
    assert NEW.encode() not in content(log)


async def test_another_sandbox_of_the_same_trail_learns_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen, policy = Trail(AuditLog.at(tmp_path / "log"), who="me"), Policy(secrets=[SECRET], network=RULES)
    monkeypatch.setenv("TOKEN", NEW)
    audit = SandboxAudit(chosen)
    async with audit.opening(Policy()):
        pass
    await audit.policy_changed(policy)
    assert audit.trail.redaction.values == (NEW,)
    assert chosen.redaction.values == Trail().redaction.values == ()


async def test_output_after_a_change_of_the_rules_is_kept_without_the_new_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = AuditLog.at(tmp_path / "log")
    policy = Policy(backend="native", secrets=[SECRET], network=RULES, audit={"code": "full", "output": "full"})
    monkeypatch.setenv("TOKEN", OLD)
    async with AsyncSandbox(policy, audit=log) as box:
        monkeypatch.setenv("TOKEN", NEW)
        await box.change_policy(policy)
        await box.run(f"print({OLD!r}, {NEW!r})")
    assert OLD.encode() not in content(log)
    assert NEW.encode() not in content(log)
