"""Answers with a type: validated, sent back when they are wrong, and a value in the result."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, assert_type

import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypedDict
from unit.agents.model_server import serving, text
from unit.agents.model_server import tool_call as called
from unit.agents.runtime_staff import MakeRuntime
from unit.agents.witness import Witness

from fumehood import Policy, UsageError
from fumehood.agents import (
    ApprovalSettings,
    AssistantAgent,
    Budget,
    RecordingModel,
    ReplayModel,
    ScriptedModel,
    Stop,
    TaskDone,
    TaskRequest,
    TaskResult,
    ToolMessage,
    call,
    find_model,
    task_agent,
)
from fumehood.agents.events import TaskEnded
from fumehood.agents.models.interface import ModelRequest
from fumehood.agents.teams import HandoffTeam, RoundRobinTeam, TextMention
from fumehood.tools import PYTHON, SHELL
from fumehood.tools.approvals import ApprovalAnswer
from fumehood.tools.filters import Pipeline

pytestmark = pytest.mark.anyio


class City(BaseModel):
    name: str
    people: int = Field(ge=0)


@dataclass
class Point:
    x: float
    y: float


class Row(TypedDict):
    key: str
    values: list[int]


OSLO = call("final_result", name="Oslo", people=700_000)


@pytest.mark.parametrize(
    ("output_type", "arguments", "value"),
    [
        (City, {"name": "Oslo", "people": 700_000}, City(name="Oslo", people=700_000)),
        (Point, {"x": 1, "y": 2.5}, Point(1.0, 2.5)),
        (Row, {"key": "a", "values": [1, 2]}, {"key": "a", "values": [1, 2]}),
        (int, {"value": 42}, 42),
        (list[City], {"value": [{"name": "Oslo", "people": 1}]}, [City(name="Oslo", people=1)]),
        (Literal["yes", "no"], {"value": "no"}, "no"),
        (bool, {"value": False}, False),
        (type(None), {"value": None}, None),
        (dict[str, int], {"a": 1}, {"a": 1}),
    ],
    ids=str,
)
async def test_the_answer_is_a_value_of_the_type(output_type: Any, arguments: dict[str, Any], value: object) -> None:
    agent = AssistantAgent("asker", ScriptedModel(call("final_result", **arguments)), output_type=output_type)
    result = await agent.run("?")
    assert (result.output, result.stop_reason.kind) == (value, Stop.DONE)
    assert json.loads(result.text) == arguments
    json.dumps(result.to_dict())


async def test_without_a_type_the_output_is_the_text() -> None:
    result = await AssistantAgent("talker", ScriptedModel("hello")).run("hi")
    assert_type(result, TaskResult[str])
    assert result.output == result.text == "hello"
    same = await AssistantAgent("talker", ScriptedModel("hello"), output_type=str).run("hi")
    assert same.output == "hello"


async def test_the_type_of_the_result_is_known_to_type_checkers() -> None:
    agent = AssistantAgent("asker", ScriptedModel(OSLO), output_type=City)
    result = await agent.run("?")
    assert_type(result.output, City)
    talker = AssistantAgent("talker", ScriptedModel("hello"))
    team = RoundRobinTeam([agent, talker])
    assert_type(team, RoundRobinTeam[City | str])


async def test_a_wrong_answer_goes_back_to_the_model_with_what_was_wrong(witness: Witness) -> None:
    model = ScriptedModel(
        call("final_result", name="Oslo", people=-1), call("final_result", nam="Oslo"), OSLO, "never reached"
    )
    agent = AssistantAgent("asker", model, output_type=City, audit=witness.log)
    result = await agent.run("?")
    assert result.output == City(name="Oslo", people=700_000)
    assert (result.usage.turns, result.usage.tool_calls) == (3, 0)
    told = [message for message in result.messages if isinstance(message, ToolMessage)]
    assert [message.status for message in told] == ["invalid", "invalid", "success"]
    assert "people: Input should be greater than or equal to 0" in told[0].text
    assert "name: Field required" in told[1].text
    assert [record["data"]["tool"] for record in witness.records("tool.refused")] == ["final_result"] * 2


async def test_a_text_is_not_taken_for_the_answer() -> None:
    result = await AssistantAgent("asker", ScriptedModel("It is Oslo.", OSLO), output_type=City).run("?")
    assert result.output.name == "Oslo"
    assert result.messages[2].text.startswith("The answer must be a call of the tool final_result")


@pytest.mark.parametrize("wrong", ["Oslo!", call("final_result", name="Oslo"), call("final_result")], ids=repr)
async def test_after_the_last_retry_the_task_ends_without_an_output(wrong: Any) -> None:
    agent = AssistantAgent("asker", ScriptedModel(*[wrong] * 9), output_type=City, output_retries=1)
    result = await agent.run("?")
    assert (result.stop_reason.kind, result.usage.turns) == (Stop.INVALID_OUTPUT, 2)
    with pytest.raises(UsageError, match=r"ended without an output \(invalid_output: "):
        _ = result.output
    again = await agent.run("and now?")  # each task has its own retries
    assert (again.stop_reason.kind, again.usage.turns) == (Stop.INVALID_OUTPUT, 2)


async def test_the_budget_bounds_the_retries() -> None:
    wrong = [call("final_result")] * 9
    agent = AssistantAgent("asker", ScriptedModel(*wrong), output_type=City, output_retries=100, budget=Budget(turns=3))
    result = await agent.run("?")
    assert (result.stop_reason.kind, result.stop_reason.limit, result.usage.turns) == (Stop.BUDGET, "turns", 3)
    with pytest.raises(UsageError, match="without an output"):
        _ = result.output


async def test_an_answer_that_spends_the_last_tokens_counts() -> None:
    agent = AssistantAgent("asker", ScriptedModel(OSLO), output_type=City, budget=Budget(tokens=1))
    assert (await agent.run("?")).output.name == "Oslo"


@pytest.mark.parametrize(
    "arguments", ["not JSON", "[1]", '{"value": NaN}', '{"value": 1, "more": 2}', "{}", "[" * 100_000]
)
async def test_arguments_that_are_not_such_a_value_are_rejected(arguments: str) -> None:
    step = call("final_result").model_copy(update={"arguments": arguments})
    agent = AssistantAgent("asker", ScriptedModel(step, call("final_result", value=1.5)), output_type=float)
    result = await agent.run("?")
    assert (result.output, result.usage.turns) == (1.5, 2)


async def test_tools_are_called_before_the_answer_and_not_after_it() -> None:
    seen: list[str] = []

    async def note(text: str) -> str:
        """Write it down."""
        seen.append(text)
        return "noted"

    steps = [call("note", text="before"), call("final_result", value=1), call("note", text="after")]
    agent = AssistantAgent("asker", ScriptedModel(steps, "next"), tools=[note], output_type=int)
    result = await agent.run("?")
    assert (result.output, seen) == (1, ["before"])
    assert [message.text for message in result.messages[2:]] == [
        "noted",
        "The answer was taken.",
        "This call was not made: the task ended before.",
    ]


async def test_events_show_the_answer_and_end_with_the_value() -> None:
    agent = AssistantAgent("asker", ScriptedModel(["I know.", OSLO]), output_type=City)
    events = [event async for event in agent.run_stream("?")]
    assert [event.kind for event in events] == ["task.started", "text", "tool.call", "tool.result", "task.ended"]
    last = events[-1]
    assert isinstance(last, TaskEnded)
    assert last.result.output == City(name="Oslo", people=700_000)


async def test_an_answer_passes_the_filters_as_a_text_does() -> None:
    secret = "correct-horse-battery-staple"
    filters = Pipeline(Policy(), secrets={"PHRASE": secret, "PIN": "8230517746"})
    steps = call("final_result", key=secret, values=[8230517746]), call("final_result", key=f"({secret})", values=[1])
    agent = AssistantAgent("asker", ScriptedModel(*steps), filters=filters, output_type=Row)
    result = await agent.run("?")
    assert secret not in repr(result)
    assert "8230517746" not in repr(result)
    assert result.output["key"].startswith("([")
    assert result.output["values"] == [1]


async def test_a_pause_comes_before_the_answer_of_the_same_turn(witness: Witness) -> None:
    policy = Policy(name="careful", approvals=[{"tool": "shell"}])
    wrong, right = call("final_result", value="none"), call("final_result", value=7)

    def make() -> AssistantAgent[int]:
        settings = ApprovalSettings(pauses=True, store=witness.store)
        model = ScriptedModel(wrong, [call("shell", command="echo 7"), wrong], right)
        return AssistantAgent(
            "asker", model, tools=[SHELL], policy=policy, approvals=settings, output_type=int, output_retries=2
        )

    first = make()
    paused = await first.run("?")
    assert paused.stop_reason.kind is Stop.APPROVAL_PENDING
    with pytest.raises(UsageError, match="without an output"):
        _ = paused.output
    assert paused.stop_reason.approval is not None
    witness.store.answer(paused.stop_reason.approval, ApprovalAnswer(approved=True, by="alice"))
    second = make()
    second.load_state(json.loads(json.dumps(first.save_state())))
    result = await second.resume()
    assert (result.output, result.usage.turns, result.task_id) == (7, 3, paused.task_id)


async def test_rejected_answers_before_a_pause_count_after_it(witness: Witness) -> None:
    policy = Policy(name="careful", approvals=[{"tool": "shell"}])
    wrong = call("final_result", value="none")
    settings = ApprovalSettings(pauses=True, store=witness.store)
    model = ScriptedModel(wrong, [call("shell", command="echo 7"), wrong], call("final_result", value=7))
    agent = AssistantAgent(
        "asker", model, tools=[SHELL], policy=policy, approvals=settings, output_type=int, output_retries=1
    )
    paused = await agent.run("?")
    assert paused.stop_reason.approval is not None
    witness.store.answer(paused.stop_reason.approval, ApprovalAnswer(approved=True, by="alice"))
    assert (await agent.resume()).stop_reason.kind is Stop.INVALID_OUTPUT


async def test_a_handoff_gives_back_what_the_last_one_answers() -> None:
    expert = AssistantAgent("expert", ScriptedModel(OSLO), output_type=City, description="Knows cities.")
    desk = AssistantAgent("desk", ScriptedModel(call("hand_off", to="expert")), handoffs=[expert])
    result = await HandoffTeam([desk]).run("?")
    assert result.output == City(name="Oslo", people=700_000)
    assert json.loads(result.text) == {"name": "Oslo", "people": 700_000}


async def test_an_agent_with_a_type_can_hand_the_task_over() -> None:
    desk = AssistantAgent("desk", ScriptedModel(call("hand_off", to="talker")), handoffs=["talker"], output_type=City)
    result = await HandoffTeam([desk, AssistantAgent("talker", ScriptedModel("hello"))]).run("?")
    assert result.output == "hello"


async def test_others_in_a_team_read_the_answer_as_json() -> None:
    expert = AssistantAgent("expert", ScriptedModel(OSLO), output_type=City)
    critic = AssistantAgent("critic", ScriptedModel("APPROVED"))
    team = RoundRobinTeam([expert, critic], termination=TextMention("APPROVED"))
    result = await team.run("?")
    assert result.output == "APPROVED"
    assert json.loads(team.said[1].text) == {"name": "Oslo", "people": 700_000}
    assert critic.messages[1].source == "expert"


async def test_a_team_that_ends_before_there_is_an_answer_has_no_output() -> None:
    expert = AssistantAgent("expert", ScriptedModel("hm"), output_type=City)
    result = await RoundRobinTeam([expert]).run("?")
    assert result.stop_reason.kind is Stop.MODEL_FAILED
    with pytest.raises(UsageError, match="without an output"):
        _ = result.output


async def test_in_a_runtime_the_answer_is_json(make_runtime: MakeRuntime) -> None:
    async with make_runtime() as runtime:
        make = task_agent(lambda id: AssistantAgent("expert", ScriptedModel(OSLO), output_type=City))
        await runtime.register("expert", make)
        done = await runtime.send(TaskRequest(text="?"), to="expert", reply=TaskDone)
    assert City.model_validate_json(done.text).name == "Oslo"


async def test_the_model_is_told_the_type_apart_from_the_tools() -> None:
    requests: list[ModelRequest] = []

    def answer(request: ModelRequest) -> Any:
        requests.append(request)
        return OSLO

    await AssistantAgent("asker", ScriptedModel(answer), tools=[PYTHON], output_type=City).run("?")
    (request,) = requests
    assert [tool["name"] for tool in request.tools] == ["python"]
    assert request.output_tool is not None
    assert request.output_tool["parameters"]["required"] == ["name", "people"]


async def test_a_server_is_asked_for_a_call_and_nothing_else() -> None:
    with serving() as server:
        server.answers = [text("Oslo."), called("final_result", '{"name": "Oslo", "people": 5}')]
        model = find_model(server.model, api_key="k")
        result = await AssistantAgent("asker", model, output_type=City).run("?")
    assert result.output == City(name="Oslo", people=5)
    first = server.requests[0]
    assert [tool["function"]["name"] for tool in first["tools"]] == ["final_result"]
    assert first["tool_choice"] == "required"
    assert server.requests[1]["messages"][-1]["content"].startswith("note says:\nThe answer must be a call")


async def test_a_recording_of_an_answer_with_a_type_is_replayed(tmp_path: Path) -> None:
    tape = tmp_path / "tape.jsonl"
    await AssistantAgent("asker", RecordingModel(ScriptedModel(OSLO), tape), output_type=City).run("?")
    assert (await AssistantAgent("asker", ReplayModel(tape), output_type=City).run("?")).output.name == "Oslo"
    other = await AssistantAgent("asker", ReplayModel(tape), output_type=Point).run("?")
    assert other.stop_reason.failure == "unrecorded"


async def test_without_a_type_the_tool_is_not_there() -> None:
    result = await AssistantAgent("talker", ScriptedModel(OSLO, "hello"), tools=[PYTHON]).run("?")
    assert "There is no tool 'final_result'" in result.messages[2].text
    assert result.output == "hello"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"output_type": object()}, "is not a type of JSON values"),
        ({"output_type": "City"}, "is not a type"),
        ({"output_type": int, "output_retries": -1}, "output_retries must be a number of at least 0"),
        ({"output_type": int, "output_retries": True}, "output_retries must be a number of at least 0"),
    ],
)
async def test_what_is_not_a_type_is_refused_when_the_agent_is_made(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        AssistantAgent("asker", ScriptedModel("hello"), **options)


async def test_a_tool_of_the_same_name_is_refused() -> None:
    def final_result(value: int) -> None:
        """Do something else."""

    with pytest.raises(UsageError, match="two tools of asker have the same name"):
        AssistantAgent("asker", ScriptedModel("x"), tools=[final_result], output_type=int)
