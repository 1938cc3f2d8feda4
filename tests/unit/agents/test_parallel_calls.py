"""Several calls in one answer: at once where their tools allow it, with results in the model's order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from unit.agents.witness import Witness

from fumehood import Policy
from fumehood.agents import (
    ApprovalSettings,
    AssistantAgent,
    Budget,
    ScriptedModel,
    Stop,
    ToolMessage,
    call,
)
from fumehood.agents.events import CallMade, CallReturned
from fumehood.tools import PYTHON, WRITE_FILE, LongText, tool
from fumehood.tools.filters import Direction, Filtered, Pipeline
from fumehood.tools.result import TextPart

pytestmark = pytest.mark.anyio


class Crowd:
    """Calls that go on when so many are there at the same time."""

    def __init__(self, wanted: int) -> None:
        self._wanted, self._complete = wanted, anyio.Event()
        self.inside = self.most = 0
        self.order: list[int] = []

    async def join(self, number: int) -> None:
        self.inside += 1
        self.most = max(self.most, self.inside)
        self.order.append(number)
        if self.inside >= self._wanted:
            self._complete.set()
        await self._complete.wait()
        self.inside -= 1

    def tool(self, **options: Any) -> Any:
        async def meet(number: int) -> str:
            """Meet the others."""
            await self.join(number)
            return f"result {number}"

        return tool(**options)(meet)


def script(*numbers: int) -> ScriptedModel:
    return ScriptedModel([call("meet", number=number) for number in numbers], "done")


def results(messages: tuple[Any, ...]) -> list[str]:
    return [message.text for message in messages if isinstance(message, ToolMessage)]


async def test_calls_of_one_answer_are_carried_out_at_once(witness: Witness) -> None:
    crowd = Crowd(3)
    agent = AssistantAgent("a", script(1, 2, 3), tools=[crowd.tool()], audit=witness.log)
    with anyio.fail_after(30):
        result = await agent.run("meet")
    assert (result.stop_reason.kind, results(result.messages)) == (Stop.DONE, ["result 1", "result 2", "result 3"])
    assert (crowd.most, result.usage.tool_calls) == (3, 3)


async def test_results_are_in_the_order_of_the_calls_and_events_in_that_of_the_results(witness: Witness) -> None:
    second_is_done = anyio.Event()

    async def work(number: int) -> str:
        """Work."""
        if number == 1:
            await second_is_done.wait()
        else:
            second_is_done.set()
        return f"result {number}"

    model = ScriptedModel([call("work", number=1), call("work", number=2)], "done")
    agent = AssistantAgent("a", model, tools=[work], audit=witness.log)
    with anyio.fail_after(30):
        events = [event async for event in agent.run_stream("work")]
    shown = [
        event.text if isinstance(event, CallReturned) else event.arguments
        for event in events
        if isinstance(event, CallMade | CallReturned)
    ]
    assert shown == ['{"number": 1}', '{"number": 2}', "result 2", "result 1"]
    assert results(agent.messages) == ["result 1", "result 2"]


@pytest.mark.parametrize(
    ("options", "agent_options"),
    [
        ({"parallel": False}, {}),
        ({}, {"parallel_calls": 1}),
        ({}, {"session": True}),
        ({}, {"policy": Policy(approvals=[{"tool": "shell"}])}),
    ],
    ids=["a tool that is not parallel", "an agent that is not", "a session", "approvals"],
)
async def test_one_after_the_other_where_order_matters(
    options: dict[str, Any], agent_options: dict[str, Any], witness: Witness
) -> None:
    crowd = Crowd(1)
    agent = AssistantAgent("a", script(1, 2, 3), tools=[crowd.tool(**options)], audit=witness.log, **agent_options)
    result = await agent.run("meet")
    assert results(result.messages) == ["result 1", "result 2", "result 3"]
    assert (crowd.most, crowd.order) == (1, [1, 2, 3])


async def test_no_more_at_once_than_the_agent_says(witness: Witness) -> None:
    crowd = Crowd(2)
    agent = AssistantAgent("a", script(1, 2, 3, 4), tools=[crowd.tool()], audit=witness.log, parallel_calls=2)
    assert len(results((await agent.run("meet")).messages)) == 4
    assert crowd.most == 2


async def test_what_is_written_is_there_for_the_calls_after_it(witness: Witness) -> None:
    write = call("write_file", path="x.py", content="print('written')")
    read = call("python", code="print(open('x.py').read())")
    agent = AssistantAgent("a", ScriptedModel([write, read], "done"), tools=[PYTHON, WRITE_FILE], audit=witness.log)
    assert "print('written')" in results((await agent.run("?")).messages)[1]


async def test_programs_of_one_answer_run_at_once_in_one_sandbox(witness: Witness) -> None:
    """Each waits for what the other writes."""
    program = """
import os, time
open("{own}", "w").close()
while not os.path.exists("{other}"): time.sleep(0.01)
print("met")
"""
    calls = [call("python", code=program.format(own=own, other=other)) for own, other in ("ab", "ba")]
    agent = AssistantAgent("a", ScriptedModel(calls, "done"), tools=[PYTHON], policy={"resources": {"timeout": "20s"}})
    assert results((await agent.run("?")).messages) == ["Success.\nstdout:\nmet"] * 2


async def test_the_budget_counts_each_call_before_any_begins(witness: Witness) -> None:
    crowd = Crowd(2)
    agent = AssistantAgent("a", script(1, 2, 3), tools=[crowd.tool()], audit=witness.log, budget=Budget(tool_calls=2))
    result = await agent.run("meet")
    assert (result.stop_reason.kind, result.stop_reason.limit) == (Stop.BUDGET, "tool_calls")
    assert (results(result.messages), result.usage.tool_calls) == (["result 1", "result 2"], 2)


async def test_a_tool_that_fails_leaves_the_others_alone(witness: Witness) -> None:
    async def work(number: int) -> str:
        """Work."""
        if number == 2:
            raise ValueError("no")
        return f"result {number}"

    model = ScriptedModel([call("work", number=number) for number in (1, 2, 3)], "done")
    result = await AssistantAgent("a", model, tools=[work], audit=witness.log).run("?")
    assert results(result.messages) == ["result 1", "It failed: ValueError: no", "result 3"]


async def test_an_error_of_the_machinery_ends_the_others_and_comes_out_as_it_is(
    witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, ended = anyio.Event(), list[str]()

    async def wait() -> str:
        """Wait."""
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("wait")

    async def fail() -> str:
        """Fail."""
        await begun.wait()
        return "never read"

    agent = AssistantAgent(
        "a", ScriptedModel([call("wait"), call("fail")], "done"), tools=[wait, fail], audit=witness.log
    )
    monkeypatch.setattr("fumehood.tools.filters.Pipeline.show", _failing)
    with pytest.raises(OSError, match="the disk is gone"):
        await agent.run("?")
    assert ended == ["wait"]
    # The conversation can go on: each call gets a result.
    monkeypatch.undo()
    assert (await agent.run("again")).stop_reason.kind is Stop.DONE


async def _failing(_: Pipeline, parts: Sequence[TextPart], direction: Direction) -> Filtered:
    if parts == (LongText("never read"),):
        raise OSError("the disk is gone")
    return Filtered("")


async def test_cancelling_in_the_middle_keeps_what_is_done_and_leaves_nothing_running(witness: Witness) -> None:
    ended = list[str]()
    one_is_done = anyio.Event()

    async def quick() -> str:
        """Be quick."""
        return "quick result"

    async def slow() -> str:
        """Be slow."""
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("slow")

    model = ScriptedModel([call("slow"), call("quick"), call("slow")], "went on")
    agent = AssistantAgent("a", model, tools=[quick, slow], audit=witness.log)
    async for event in agent.run_stream("?"):
        if isinstance(event, CallReturned):
            one_is_done.set()
            agent.cancel()
    assert one_is_done.is_set()
    assert (results(agent.messages), ended) == (["quick result"], ["slow", "slow"])
    result = await agent.run("go on")
    assert result.text == "went on"
    not_made = [text for text in results(agent.messages) if re.match("This call was not made", text)]
    assert (len(not_made), len(results(agent.messages))) == (2, 3)


async def test_a_pause_for_an_approval_comes_between_calls(witness: Witness) -> None:
    policy = Policy(approvals=[{"tool": "careful"}])

    async def careful() -> str:
        """Take care."""
        return "done with care"

    async def free() -> str:
        """Do anything."""
        return "done"

    agent = AssistantAgent(
        "a",
        ScriptedModel([call("free"), call("careful"), call("free")], "done"),
        tools=[careful, free],
        policy=policy,
        approvals=ApprovalSettings(pauses=True, store=witness.store),
        audit=witness.log,
    )
    result = await agent.run("?")
    assert (result.stop_reason.kind, results(result.messages)) == (Stop.APPROVAL_PENDING, ["done"])
    assert result.usage.tool_calls == 1
