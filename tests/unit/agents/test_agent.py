"""One agent and one task: what is said, done, counted, filtered, recorded, and why it ends."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from pathlib import Path

import anyio
import pytest
from unit.agents.witness import Witness

from fumehood import Policy, UnenforceableError, UsageError
from fumehood.agents import (
    AssistantAgent,
    AssistantMessage,
    Budget,
    CallRequest,
    ModelFailure,
    ScriptedModel,
    Stop,
    ToolMessage,
    UserMessage,
    call,
)
from fumehood.agents.models.interface import ModelAnswer, ModelRequest
from fumehood.errors import ModelError
from fumehood.tools import PYTHON, SHELL, STANDARD, tool
from fumehood.tools.filters import Pipeline

pytestmark = pytest.mark.anyio

LOOP = ScriptedModel(*[call("python", code=f"print({n})") for n in range(100)])


async def test_a_task_is_solved_by_writing_and_running_code(witness: Witness) -> None:
    model = ScriptedModel(["I compute it.", call("python", code="print(6 * 7)")], "It is 42.")
    agent = AssistantAgent("coder", model, tools=[PYTHON], audit=witness.log)
    result = await agent.run("What is six times seven?")
    assert [type(message) for message in result.messages] == [
        UserMessage,
        AssistantMessage,
        ToolMessage,
        AssistantMessage,
    ]
    assert (result.text, result.stop_reason.kind) == ("It is 42.", Stop.DONE)
    assert [message.source for message in result.messages] == ["user", "coder", "coder", "coder"]
    assert (result.usage.turns, result.usage.tool_calls) == (2, 1)
    assert witness.kinds() == [
        *("task.started", "sandbox.opened", "model.answered", "tool.called"),
        *("run.requested", "run.started", "run.finished", "tool.returned", "model.answered"),
        *("sandbox.closed", "task.ended"),
    ]
    assert {record["ids"]["task"] for record in witness.records()} == {result.task_id}
    (called,) = witness.records("tool.called")
    assert called["ids"]["agent"] == "coder"


async def test_events_come_in_order_and_end_with_the_result() -> None:
    model = ScriptedModel(["I look.", call("python", code="print(1)")], "done")
    agent = AssistantAgent("coder", model, tools=[PYTHON])
    events = [event async for event in agent.run_stream("go")]
    kinds = [event.kind for event in events]
    assert kinds == ["task.started", "text", "tool.call", "tool.result", "text", "task.ended"]
    for event in events:
        json.dumps(event.to_dict())
    assert events[-1].to_dict()["result"]["text"] == "done"  # type: ignore[index]


async def test_without_tools_nothing_is_opened_and_every_call_is_refused(witness: Witness) -> None:
    agent = AssistantAgent("talker", ScriptedModel(call("python", code="1"), "well"), audit=witness.log)
    result = await agent.run("go")
    assert result.text == "well"
    assert "sandbox.opened" not in witness.kinds()
    assert [record["data"]["tool"] for record in witness.records("tool.refused")] == ["python"]


async def test_artifacts_are_collected_and_copied_out(tmp_path: Path) -> None:
    write = "import os; os.makedirs('out', exist_ok=True); open('out/a.txt', 'w').write('{}')"
    model = ScriptedModel(call("python", code=write.format(1)), call("python", code=write.format(22)), "done", "again")
    policy = Policy(filesystem={"outputs": ["out/**"]})
    agent = AssistantAgent("coder", model, tools=[PYTHON], policy=policy, out=tmp_path / "taken")
    result = await agent.run("go")
    (artifact,) = result.artifacts
    assert (artifact.path, artifact.size) == ("out/a.txt", 2)
    assert (tmp_path / "taken" / "out" / "a.txt").read_text() == "22"


@pytest.mark.parametrize(
    ("budget", "limit"),
    [
        (Budget(turns=3), "turns"),
        (Budget(tool_calls=2), "tool_calls"),
        (Budget(tokens=10), "tokens"),
        (Budget(seconds=0.3, turns=None, tool_calls=None), "seconds"),
    ],
)
async def test_reaching_a_budget_is_a_reason_and_no_exception(budget: Budget, limit: str) -> None:
    result = await AssistantAgent("looper", LOOP, tools=[PYTHON], budget=budget).run("go on for ever")
    assert (result.stop_reason.kind, result.stop_reason.limit) == (Stop.BUDGET, limit)
    assert result.usage.turns < 100


async def test_a_cost_ends_a_task_and_so_does_one_that_nobody_knows() -> None:
    dear = ModelAnswer(calls=(CallRequest(call_id="", tool="x", arguments="{}"),), cost=0.75, input_tokens=1)
    unknown = ModelAnswer(calls=(CallRequest(call_id="", tool="x", arguments="{}"),), cost=None, is_measured=False)
    for answer, turns, budget in (
        (dear, 2, Budget(cost=1.0)),
        (unknown, 1, Budget(cost=1.0)),
        (unknown, 1, Budget(tokens=100)),
    ):
        result = await AssistantAgent("dear", ScriptedModel(*[answer] * 5), budget=budget).run("go")
        assert (result.stop_reason.kind, result.usage.turns) == (Stop.BUDGET, turns)


async def test_every_task_ends_even_without_a_budget_of_its_own() -> None:
    stop = (await AssistantAgent("looper", LOOP, tools=[PYTHON]).run("go on for ever")).stop_reason
    assert (stop.kind, stop.limit) == (Stop.BUDGET, "turns")


def test_a_budget_of_nothing_is_a_mistake() -> None:
    with pytest.raises(UsageError, match="the budget's turns must be more than 0"):
        Budget(turns=0)


async def test_a_failing_model_is_a_reason() -> None:
    model = ScriptedModel(ModelError(ModelFailure.RATE_LIMITED, "slow down"))
    stop = (await AssistantAgent("x", model).run("go")).stop_reason
    assert (stop.kind, stop.failure) == (Stop.MODEL_FAILED, ModelFailure.RATE_LIMITED)
    stop = (await AssistantAgent("x", ScriptedModel()).run("go")).stop_reason
    assert stop.failure is ModelFailure.UNRECORDED


async def test_what_goes_to_and_comes_from_a_model_is_filtered(witness: Witness) -> None:
    seen: list[ModelRequest] = []

    def look(request: ModelRequest) -> str:
        seen.append(request)
        return "the key is correct-horse\u200b indeed"

    policy = Policy()
    pipeline = Pipeline(policy, secrets={"DB": "correct-horse"})
    agent = AssistantAgent("x", ScriptedModel(look), policy=policy, filters=pipeline)
    events = [event async for event in agent.run_stream("is it correct-horse?")]
    assert seen[0].messages[0].text == "is it [secret DB removed]?"
    assert "correct-horse" not in str([event.to_dict() for event in events])
    assert agent.messages[-1].text == "the key is [secret DB removed] indeed"


async def test_results_of_tools_are_filtered_before_the_model_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUMEHOOD_TEST_TOKEN", "correct-horse-battery")
    secret = {"name": "T", "from_env": "FUMEHOOD_TEST_TOKEN", "inject": {"host": "a.example"}}
    policy = Policy(secrets=[secret], network={"allow": [{"host": "a.example", "ports": [443], "methods": ["GET"]}]})
    model = ScriptedModel(call("python", code="print('correct-' + 'horse-battery')"), "ok")
    result = await AssistantAgent("x", model, tools=[PYTHON], policy=policy).run("go")
    assert "[secret removed]" in result.messages[2].text


async def test_a_conversation_goes_on_and_the_sandbox_does_if_it_is_held() -> None:
    write, read = call("python", code="open('a', 'w').write('kept')"), call("python", code="print(open('a').read())")
    script = ScriptedModel(write, "written", read, "read")
    agent = AssistantAgent("x", script, tools=[PYTHON])
    await agent.run("write")
    result = await agent.run("read")
    assert "No such file" in result.messages[2].text
    assert "The sandbox was opened anew" in result.messages[2].text
    async with AssistantAgent("x", script, tools=[PYTHON]) as agent:
        await agent.run("write")
        result = await agent.run("read")
        assert result.messages[2].text == "Success.\nstdout:\nkept"
        assert len(agent.messages) == 8
        assert agent.sandbox is not None
    assert agent.sandbox is None


async def test_a_session_keeps_its_state_from_call_to_call() -> None:
    model = ScriptedModel(call("python", code="x = 41"), call("python", code="x + 1"), "done")
    result = await AssistantAgent("x", model, tools=[PYTHON], session=True).run("go")
    assert "value: 42" in result.messages[4].text


async def test_a_task_is_cancelled_by_name_and_another_one_can_follow(witness: Witness) -> None:
    model = ScriptedModel(call("python", code="import time; time.sleep(60)"), "fine")
    agent = AssistantAgent("x", model, tools=[PYTHON], audit=witness.log)
    agent.cancel()  # there is nothing to cancel yet
    async with aclosing(agent.run_stream("go")) as events:
        async for event in events:
            if event.kind == "tool.call":
                with pytest.raises(UsageError, match="x is at work on another task"):
                    await agent.run("meanwhile")
                agent.cancel()
            if event.kind == "task.ended":
                assert event.to_dict()["result"]["stop_reason"]["kind"] == "cancelled"  # type: ignore[index]
    assert witness.open_sandboxes() == 0
    result = await agent.run("and now?")
    assert [message.text for message in result.messages] == [
        "This call was not made: the task ended before.",
        "and now?",
        "fine",
    ]


@pytest.mark.parametrize("steps", [1, 2, 3, 5, 8, 13, 21])
async def test_a_task_can_be_cancelled_as_soon_as_it_has_begun(steps: int, witness: Witness) -> None:
    agent = AssistantAgent("x", LOOP, tools=[PYTHON], audit=witness.log)
    running = asyncio.create_task(agent.run("go"))
    for _ in range(steps):
        await asyncio.sleep(0)
    agent.cancel()
    assert (await running).stop_reason.kind is Stop.CANCELLED
    assert witness.open_sandboxes() == 0


async def test_leaving_a_stream_ends_the_task(witness: Witness) -> None:
    agent = AssistantAgent("x", LOOP, tools=[PYTHON], audit=witness.log)
    async with aclosing(agent.run_stream("go")) as events:
        async for event in events:
            if event.kind == "tool.result":
                break
    assert witness.open_sandboxes() == 0
    assert [record["data"]["stop"] for record in witness.records("task.ended")] == ["cancelled"]


async def test_cancelling_from_outside_goes_on_outward(witness: Witness) -> None:
    with anyio.CancelScope() as scope:

        @tool
        async def leave() -> str:
            """Go."""
            scope.cancel()
            return "gone"

        model = ScriptedModel(call("python", code="print(1)"), call("leave"), *[call("python", code="print(2)")] * 20)
        await AssistantAgent("x", model, tools=[PYTHON, leave], audit=witness.log).run("go")
    assert scope.cancelled_caught
    assert witness.open_sandboxes() == 0
    assert witness.kinds()[-1] == "task.ended"


async def test_a_function_of_the_application_is_a_tool() -> None:
    @tool
    def weather(city: str) -> str:
        """Tell the weather."""
        return f"rain in {city}"

    result = await AssistantAgent("x", ScriptedModel(call("weather", city="Bergen"), "it rains"), tools=[weather]).run(
        "?"
    )
    assert result.messages[2].text == "rain in Bergen"


async def test_repeated_ids_of_calls_are_told_apart() -> None:
    codes = ('{"code": "print(1)"}', '{"code": "print(2)"}')
    twice = [CallRequest(call_id="same", tool="python", arguments=code) for code in codes]
    result = await AssistantAgent("x", ScriptedModel(twice, twice, "ok"), tools=[PYTHON]).run("go")
    results = [message for message in result.messages if isinstance(message, ToolMessage)]
    assert len({message.call_id for message in results}) == 4
    assert [message.text[-1] for message in results] == ["1", "2", "1", "2"]


@pytest.mark.parametrize("name", ["", "a b", "../x", "ä", "a\n"])
def test_a_name_is_one_word(name: str) -> None:
    with pytest.raises(UsageError, match="must be made of letters"):
        AssistantAgent(name, ScriptedModel())


def test_two_tools_of_one_name_are_a_mistake() -> None:
    with pytest.raises(UsageError, match="two tools of x have the same name"):
        AssistantAgent("x", ScriptedModel(), tools=[*STANDARD, SHELL])


async def test_a_policy_that_cannot_be_enforced_is_told_before_the_model_is_asked() -> None:
    asked: list[ModelRequest] = []

    def answer(request: ModelRequest) -> str:
        asked.append(request)
        return "hello"

    agent = AssistantAgent(
        "x", ScriptedModel(answer), tools=[PYTHON], policy=Policy(audit={"required": True}), audit=False
    )
    with pytest.raises(UnenforceableError, match="the audit log is turned off"):
        await agent.run("go")
    assert asked == []
