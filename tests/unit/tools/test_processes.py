"""Processes in the background, as a model starts, reads, answers and stops them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from fumehood import AsyncSandbox, Policy
from fumehood.audit import AuditLog, Query
from fumehood.sandbox.background import AsyncBackgroundRun
from fumehood.tools import PYTHON, SHELL, Toolbox, ToolResult, ToolStatus, process_tools
from fumehood.tools.approvals import ApprovalAnswer, ApprovalRequest, Approvals, ApprovalStore
from fumehood.tools.processes import MOST_PROCESSES

pytestmark = pytest.mark.anyio
ECHO = 'while read -r line; do echo "got $line"; done; echo done'


@pytest.fixture
async def box() -> AsyncIterator[AsyncSandbox]:
    async with AsyncSandbox(Policy(filesystem={"outputs": ["**"]})) as opened:
        yield opened


@pytest.fixture
def toolbox(box: AsyncSandbox) -> Toolbox:
    return Toolbox(box, PYTHON, *process_tools())


async def start(toolbox: Toolbox, command: str, **others: Any) -> ToolResult:
    return await toolbox.call("start_process", {"command": command, **others})


async def test_a_program_is_talked_to_until_it_ends(toolbox: Toolbox) -> None:
    begun = await start(toolbox, ECHO, wait=0)
    assert begun.text.startswith("Process 1 is running.")
    answer = await toolbox.call("write_process", {"process": 1, "text": "hello\n", "wait": 30})
    assert "got hello" in answer.text
    last = await toolbox.call("write_process", {"process": 1, "text": "bye\n", "end_input": True, "wait": 30})
    while "has ended" not in last.text:
        last = await toolbox.call("read_process", {"process": 1, "wait": 30})
    assert "Process 1 has ended. Success." in last.text
    assert "done" in last.text
    assert "hello" not in last.text
    assert last.run is not None
    assert last.run.stdout == "got hello\ngot bye\ndone\n"


async def test_one_that_ends_at_once_says_how(toolbox: Toolbox) -> None:
    ended = await start(toolbox, "echo out; echo err >&2; exit 3", wait=30)
    while "has ended" not in ended.text:
        ended = await toolbox.call("read_process", {"process": 1, "wait": 30})
    assert "Failed with exit code 3." in ended.text
    assert ended.run is not None
    assert (ended.run.stdout, ended.run.stderr) == ("out\n", "err\n")


async def test_an_end_that_was_seen_frees_the_number(toolbox: Toolbox) -> None:
    await start(toolbox, "sleep 1000", wait=0)
    stopped = await toolbox.call("stop_process", {"process": 1})
    assert "has ended" in stopped.text
    again = await toolbox.call("read_process", {"process": 1})
    assert again.status is ToolStatus.ERROR
    assert "there is no process 1" in again.text


async def test_killing_ends_what_it_started_too(toolbox: Toolbox, box: AsyncSandbox) -> None:
    begun = await start(toolbox, "sleep 1000 & echo up; wait", wait=30)
    assert "up" in begun.text
    stopped = await toolbox.call("stop_process", {"process": 1})
    assert stopped.run is not None
    assert stopped.run.cause == "cancelled"


async def test_a_signal_can_be_handled(toolbox: Toolbox) -> None:
    await start(toolbox, "trap 'echo saw it; exit 0' TERM; echo up; while :; do sleep 0.05; done", wait=30)
    answer = await toolbox.call("stop_process", {"process": 1, "signal": "TERM", "wait": 30})
    assert "saw it" in answer.text


async def test_a_terminal_is_one(toolbox: Toolbox) -> None:
    begun = await start(toolbox, "test -t 0 && echo yes; stty size", terminal=True, wait=30)
    while "has ended" not in begun.text:
        begun = await toolbox.call("read_process", {"process": 1, "wait": 30})
    assert begun.run is not None
    assert begun.run.stdout.split() == ["yes", "40", "120"]


async def test_there_are_only_so_many_at_once(toolbox: Toolbox) -> None:
    for _ in range(MOST_PROCESSES):
        assert (await start(toolbox, "sleep 1000", wait=0)).ok
    refused = await start(toolbox, "sleep 1000", wait=0)
    assert refused.status is ToolStatus.ERROR
    assert "which is the most" in refused.text
    await toolbox.call("stop_process", {"process": 3})
    assert (await start(toolbox, "sleep 1000", wait=0)).ok


async def together(*calls: Callable[[], Awaitable[ToolResult]]) -> list[ToolResult]:
    """As the calls of one answer of a model are carried out."""
    results: list[ToolResult] = []

    async def make(call: Callable[[], Awaitable[ToolResult]]) -> None:
        results.append(await call())

    async with anyio.create_task_group() as group:
        for call in calls:
            group.start_soon(make, call)
    return results


async def test_those_that_are_being_started_count_too(toolbox: Toolbox, monkeypatch: pytest.MonkeyPatch) -> None:
    begin, entered, are_in, go_on = AsyncSandbox.start, 0, anyio.Event(), anyio.Event()

    async def held_up(box: AsyncSandbox, code: str, **options: Any) -> AsyncBackgroundRun:
        nonlocal entered
        entered += 1
        if entered == MOST_PROCESSES:
            are_in.set()
        if entered <= MOST_PROCESSES:
            await go_on.wait()
        return await begin(box, code, **options)

    monkeypatch.setattr(AsyncSandbox, "start", held_up)
    async with anyio.create_task_group() as group:
        for _ in range(MOST_PROCESSES):
            group.start_soon(partial(start, toolbox, "sleep 1000", wait=0))
        await are_in.wait()
        refused = await start(toolbox, "sleep 1000", wait=0)
        go_on.set()
    assert "which is the most" in refused.text


async def test_several_calls_at_the_same_time_may_see_the_end(toolbox: Toolbox) -> None:
    await start(toolbox, "sleep 1000", wait=0)
    results = await together(*[partial(toolbox.call, "stop_process", {"process": 1})] * 3)
    assert ["has ended" in result.text for result in results] == [True] * 3


async def test_one_that_ended_unseen_makes_room(toolbox: Toolbox, box: AsyncSandbox) -> None:
    await start(toolbox, "touch ended", wait=0)
    for _ in range(MOST_PROCESSES - 1):
        await start(toolbox, "sleep 1000", wait=0)
    await toolbox.call("python", {"code": "import os, time\nwhile not os.path.exists('ended'): time.sleep(0.01)"})
    while (began := await start(toolbox, "sleep 1000", wait=0)).status is ToolStatus.ERROR:
        pass
    assert began.ok


async def test_a_program_that_does_not_read_does_not_block_the_model(toolbox: Toolbox) -> None:
    await start(toolbox, "sleep 1000", wait=0)
    answer = await toolbox.call("write_process", {"process": 1, "text": "x" * 4_000_000, "wait": 0})
    assert "does not read its input" in answer.text


async def test_a_sandbox_knows_its_own_processes_alone(toolbox: Toolbox, box: AsyncSandbox) -> None:
    tools = process_tools()
    first = Toolbox(box, *tools)
    await start(first, "sleep 1000", wait=0)
    async with AsyncSandbox(Policy()) as other:
        answer = await Toolbox(other, *tools).call("read_process", {"process": 1})
    assert "there is no process 1" in answer.text


async def test_command_rules_hold_for_it() -> None:
    async with AsyncSandbox(Policy(commands={"allow": ["echo *"]})) as box:
        refused = await start(Toolbox(box, *process_tools()), "cat /etc/passwd")
    assert refused.status is ToolStatus.DENIED


@pytest.mark.parametrize(
    ("rules", "is_asked"),
    [
        ([{"tool": "shell"}], True),
        ([{"tool": "start_process"}], True),
        ([{"tool": "*", "risk": "high"}], True),
        ([{"tool": "shell"}, {"tool": "start_process", "when": "never"}], True),
        ([{"tool": "*"}, {"tool": "shell", "when": "never"}], True),
        ([{"tool": "python"}], False),
        ([{"tool": "*"}, {"tool": "shell", "when": "never"}, {"tool": "start_process", "when": "never"}], False),
    ],
)
async def test_a_rule_for_the_shell_holds_for_processes(
    tmp_path: Path, rules: list[dict[str, str]], is_asked: bool
) -> None:
    asked: list[str] = []

    async def refuse(request: ApprovalRequest) -> ApprovalAnswer:
        asked.append(request.call.tool)
        return ApprovalAnswer(approved=False)

    policy = Policy(approvals=rules)
    async with AsyncSandbox(policy, gated=True) as box:
        gate = Approvals(policy, ask=refuse, store=ApprovalStore(tmp_path / "approvals"), trail=box.trail)
        result = await start(Toolbox(box, SHELL, *process_tools(), gate=gate), "echo hi", wait=0)
    assert asked == (["start_process"] if is_asked else [])
    assert result.status is (ToolStatus.DENIED if is_asked else ToolStatus.SUCCESS)


async def test_what_is_typed_into_a_process_needs_the_approval_of_the_shell_too(tmp_path: Path) -> None:
    asked: list[str] = []

    async def answer(request: ApprovalRequest) -> ApprovalAnswer:
        asked.append(request.call.tool)
        return ApprovalAnswer(approved=request.call.tool == "start_process")

    policy = Policy(approvals=[{"tool": "shell"}])
    async with AsyncSandbox(policy, gated=True) as box:
        gate = Approvals(policy, ask=answer, store=ApprovalStore(tmp_path / "approvals"), trail=box.trail)
        toolbox = Toolbox(box, *process_tools(), gate=gate)
        await start(toolbox, "bash", wait=0)
        typed = await toolbox.call("write_process", {"process": 1, "text": "touch made\n"})
        assert typed.status is ToolStatus.DENIED
        assert [entry.name for entry in await box.files.list()] == []
    assert asked == ["start_process", "write_process"]


async def test_it_is_recorded_as_a_run(tmp_path: Path) -> None:
    log = AuditLog.at(tmp_path / "audit")
    async with AsyncSandbox(Policy(), audit=log) as box:
        toolbox = Toolbox(box, *process_tools())
        await start(toolbox, "sleep 1000", wait=0)
        await toolbox.call("stop_process", {"process": 1})
    kinds = {record.kind for record in AuditLog.at(tmp_path / "audit").find(Query())}
    assert {"tool.called", "run.requested", "run.started", "run.finished", "tool.returned"} <= kinds
