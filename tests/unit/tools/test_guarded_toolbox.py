"""A toolbox under approvals and filters, with a real sandbox: who is asked, and what the model gets to read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fumehood import AsyncSandbox, Policy, UnenforceableError, UsageError
from fumehood.audit import AuditLog, Query
from fumehood.tools import PYTHON, STANDARD, Toolbox, ToolResult, ToolStatus
from fumehood.tools.approvals import ApprovalAnswer, ApprovalRequest, Approvals, ApprovalStore
from fumehood.tools.filters import CanaryAlert, Pipeline

pytestmark = pytest.mark.anyio

POLICY = Policy(approvals=[{"tool": "python"}], resources={"timeout": "20s"})
SECRET = "correct-horse-battery"


@asynccontextmanager
async def opened(
    folder: Path, answer: ApprovalAnswer, seen: list[ApprovalRequest] | None = None
) -> AsyncIterator[Toolbox]:
    async def ask(request: ApprovalRequest) -> ApprovalAnswer:
        if seen is not None:
            seen.append(request)
        return answer

    log = AuditLog.at(folder / "audit")
    async with AsyncSandbox(POLICY, audit=log, gated=True) as box:
        store = ApprovalStore(folder / "approvals")
        yield Toolbox(box, *STANDARD, gate=Approvals(POLICY, ask=ask, store=store, trail=box.trail))


async def test_a_yes_lets_the_call_be_made_and_the_story_is_in_the_log(tmp_path: Path) -> None:
    seen: list[ApprovalRequest] = []
    async with opened(tmp_path, ApprovalAnswer(approved=True, by="alice"), seen) as toolbox:
        result = await toolbox.call("python", {"code": "print(6 * 7)"})
    assert result.text == "Success.\nstdout:\n42"
    assert seen[0].call.text == "print(6 * 7)"
    assert [record.kind for record in AuditLog.at(tmp_path / "audit").find(Query()) if "log." not in record.kind] == [
        *("sandbox.opened", "tool.called", "approval.asked", "approval.given", "approval.used"),
        *("run.requested", "run.started", "run.finished", "tool.returned", "sandbox.closed"),
    ]


async def test_a_no_is_a_result_for_the_model_and_nothing_runs(tmp_path: Path) -> None:
    async with opened(tmp_path, ApprovalAnswer(approved=False, reason="too much", by="bob")) as toolbox:
        result = await toolbox.call("python", {"code": "print(6 * 7)"})
    assert (result.status, result.run) == (ToolStatus.DENIED, None)
    assert result.text == "Denied: denied by bob: too much. Do not try the same again."


async def test_an_edited_call_runs_as_it_was_approved(tmp_path: Path) -> None:
    edited = ApprovalAnswer(approved=True, arguments={"code": "print(7 * 7)", "timeout": 5})
    async with opened(tmp_path, edited) as toolbox:
        assert (await toolbox.call("python", {"code": "print(6 * 7)"})).text == "Success.\nstdout:\n49"


async def test_a_tool_without_a_rule_is_not_asked_about(tmp_path: Path) -> None:
    seen: list[ApprovalRequest] = []
    async with opened(tmp_path, ApprovalAnswer(approved=False), seen) as toolbox:
        assert (await toolbox.call("write_file", {"path": "x", "content": "y"})).ok
    assert seen == []


async def test_a_yes_under_a_policy_that_has_changed_meanwhile_is_none(tmp_path: Path) -> None:
    other = POLICY.override({"network": {"allow": [{"host": "a.example", "ports": [443]}]}})

    async with AsyncSandbox(
        POLICY.override({"network": {"allow": [{"host": "b.example", "ports": [443]}]}}), gated=True
    ) as box:

        async def ask(request: ApprovalRequest) -> ApprovalAnswer:
            await box.change_policy(box.policy.override({"network": other.network.model_dump()}))
            return ApprovalAnswer(approved=True)

        approvals = Approvals(lambda: box.policy, ask=ask, store=ApprovalStore(tmp_path / "approvals"))
        result = await Toolbox(box, *STANDARD, gate=approvals).call("python", {"code": "print(1)"})
        assert (result.status, result.run) == (ToolStatus.DENIED, None)
        assert "the policy has changed" in result.text
        await box.change_policy(box.policy)
        assert (await Toolbox(box, *STANDARD, gate=approvals).call("python", {"code": "print(1)"})).ok


async def test_rules_that_nobody_applies_open_nothing() -> None:
    with pytest.raises(UnenforceableError, match="a sandbox alone does not ask for them"):
        async with AsyncSandbox(POLICY):
            pytest.fail("it opened")
    async with AsyncSandbox(POLICY, gated=True) as box:
        with pytest.raises(UsageError, match="no gate to ask"):
            Toolbox(box, PYTHON)


@asynccontextmanager
async def filtered(**filters: object) -> AsyncIterator[tuple[Toolbox, list[CanaryAlert]]]:
    alarms: list[CanaryAlert] = []
    async with AsyncSandbox(Policy(filters=filters)) as box:
        values = {"secrets": {"A": SECRET}, "canaries": {"c": "KX83-canary-value-77"}}
        pipeline = Pipeline(box.policy, trail=box.trail, on_alarm=alarms.append, **values)
        yield Toolbox(box, *STANDARD, filters=pipeline), alarms


async def test_a_secret_does_not_reach_the_model_in_any_form() -> None:
    code = f"import base64; s = {SECRET!r}; print(s, s[::-1], base64.b64encode(s.encode()).decode(), s.encode().hex())"
    async with filtered() as (toolbox, _):
        result = await toolbox.call("python", {"code": code})
    assert result.text.count("[secret A removed]") == 4
    assert result.run is not None
    assert SECRET in result.run.stdout  # the application has it all


@pytest.mark.parametrize("place", range(7990, 8004))
async def test_a_cut_does_not_save_half_of_a_secret(filtering: Toolbox, place: int) -> None:
    result = await filtering.call("python", {"code": f"print('x' * {place} + {SECRET!r} + 'y' * 9000)"})
    assert "left out ...]" in result.text
    assert not any(SECRET[start : start + 5] in result.text for start in range(len(SECRET) - 5))


@pytest.fixture(scope="module")
async def filtering() -> AsyncIterator[Toolbox]:
    async with filtered() as (toolbox, _):
        yield toolbox


def told() -> str:
    """Returns a secret."""
    return SECRET


def told_late() -> str:
    """Returns a secret where a long text is cut."""
    return "x" * 7985 + SECRET + "y" * 9000


def failing() -> str:
    """Fails with a secret in its message."""
    raise ValueError(SECRET)


def ready_made() -> ToolResult:
    """Returns a result of its own."""
    return ToolResult(f"it is {SECRET}")


_IN_PIECES = "s = 'correct-' + 'horse-' + 'battery'\n"
EVERY_PART = {
    "standard output": ("python", {"code": f"{_IN_PIECES}print(s)"}),
    "standard error": ("python", {"code": f"{_IN_PIECES}import sys; print(s, file=sys.stderr)"}),
    "a cut of standard error": (
        "python",
        {"code": f"{_IN_PIECES}import sys; print('x' * 7985 + s + 'y' * 9000, file=sys.stderr)"},
    ),
    "the end of one part and the beginning of the next": (
        "python",
        {"code": f"{_IN_PIECES}import sys; print(s[:9], end=''); print(s, file=sys.stderr)"},
    ),
    "the name of a file": ("python", {"code": f"{_IN_PIECES}open(s + '.txt', 'w')"}),
    "a file": ("read_file", {"path": "kept"}),
    "a listing": ("list_files", {"path": "."}),
    "a failure of the tool": ("read_file", {"path": f"gone-{SECRET}"}),
    "a value": ("told", {}),
    "a cut of a value": ("told_late", {}),
    "a message of an exception": ("failing", {}),
    "a result of an application": ("ready_made", {}),
}


@pytest.mark.parametrize("part", EVERY_PART)
async def test_no_part_of_a_result_keeps_a_secret(tmp_path: Path, part: str) -> None:
    log = AuditLog.at(tmp_path / "audit")
    async with AsyncSandbox(Policy(filesystem={"outputs": ["*.txt"]}), audit=log) as box:
        await box.files.write("kept", f"{'x' * 7985}{SECRET}{'y' * 9000}")
        await box.files.write(f"{SECRET}.txt", "")
        pipeline = Pipeline(box.policy, trail=box.trail, secrets={"A": SECRET})
        name, arguments = EVERY_PART[part]
        tools = (*STANDARD, told, told_late, failing, ready_made)
        result = await Toolbox(box, *tools, filters=pipeline).call(name, arguments)
    assert "[secret A" in result.text
    assert not any(SECRET[start : start + 10] in result.text for start in range(len(SECRET) - 10))
    found = [record.data for record in AuditLog.at(tmp_path / "audit").find(Query()) if record.kind == "filter.acted"]
    results = [each for each in found if each["direction"] == "tool_result" and each["filter"] == "secrets"]
    assert [(each["action"], each["count"]) for each in results] == [("strip", 1)]


async def test_what_is_only_recorded_is_what_the_model_reads(tmp_path: Path) -> None:
    log = AuditLog.at(tmp_path / "audit")
    code = "path = '/etc' + '/shadow '\nprint(path, 'x' * 9000, path, 'y' * 9000, path)"
    async with AsyncSandbox(Policy(), audit=log) as box:
        result = await Toolbox(box, *STANDARD).call("python", {"code": code})
    assert result.text.count("/etc/shadow") == 2
    found = [record.data for record in AuditLog.at(tmp_path / "audit").find(Query()) if record.kind == "filter.acted"]
    results = [each for each in found if each["direction"] == "tool_result"]
    assert [(each["filter"], each["action"], each["count"]) for each in results] == [("host_paths", "flag", 2)]


async def test_a_canary_in_a_result_raises_an_alarm_and_withholds_it() -> None:
    async with filtered() as (toolbox, alarms):
        written = "".join(chr(ord(each) + 1) for each in "KX83-canary-value-77")
        result = await toolbox.call("python", {"code": f"print(''.join(chr(ord(each) - 1) for each in {written!r}))"})
    assert result.text == "[withheld by policy: the text holds what must not leave]"
    assert alarms == [CanaryAlert("c", "tool_result")]


async def test_a_canary_in_a_call_raises_an_alarm_and_nothing_runs() -> None:
    async with filtered() as (toolbox, alarms):
        result = await toolbox.call("python", {"code": "print('KX83-' + 'canary-value-77')"})
    assert (result.status, result.run) == (ToolStatus.DENIED, None)
    assert alarms == [CanaryAlert("c", "from_model")]


async def test_arguments_are_taken_as_they_are_or_not_at_all() -> None:
    async with filtered(host_paths="block", tokens="strip") as (toolbox, _):
        denied = await toolbox.call("python", {"code": "print(open('/etc/shadow').read())"})
        unchanged = await toolbox.call("python", {"code": f"print(len({SECRET!r}))"})
    assert (denied.status, denied.run) == (ToolStatus.DENIED, None)
    assert denied.text == "Denied: [withheld by policy: the text holds host path]"
    assert unchanged.text == f"Success.\nstdout:\n{len(SECRET)}"
