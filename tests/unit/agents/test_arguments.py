"""What agents, teams and runtimes take: policies and durations in every form, and nothing that they do not know."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fumehood import Policy
from fumehood.agents import AssistantAgent, Budget, ScriptedModel, call
from fumehood.agents.models.interface import ModelRequest
from fumehood.agents.teams import CodingPair, HandoffTeam, RoundRobinTeam, SelectorTeam, Timeout
from fumehood.errors import PolicyError, UsageError
from fumehood.runtime import LocalRuntime, RuntimeLimits
from fumehood.tools import PYTHON


def talker(**options: Any) -> AssistantAgent:
    return AssistantAgent("talker", ScriptedModel("hello"), **options)


def test_an_agent_takes_a_policy_in_every_form(tmp_path: Path) -> None:
    policy = Policy(resources={"memory": "64M"})
    file = tmp_path / "small.yaml"
    file.write_text("resources: {memory: 64M}\n")
    for form in (policy, {"resources": {"memory": "64M"}}, file, str(file)):
        assert talker(policy=form).policy == policy
    assert talker().policy == Policy()


def test_a_policy_that_makes_no_sense_is_told_when_the_agent_is_made() -> None:
    with pytest.raises(
        UsageError, match="policy must be a Policy, a mapping, the path of a policy file or the name of one"
    ):
        talker(policy=42)
    with pytest.raises(PolicyError, match=r"missing\.yaml: cannot be read"):
        talker(policy="missing.yaml")
    with pytest.raises(UsageError, match=r"a tool is one of `fumehood.tools`"):
        talker(tools=[{"name": "python"}])


def test_durations_are_spelled_as_in_policies() -> None:
    assert Budget(seconds="2m").seconds == 120
    assert Timeout("500ms").seconds == 0.5
    assert RuntimeLimits(deadline_seconds="5s").deadline_seconds == 5  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Budget(seconds="soon"),
        lambda: Budget(turns="ten"),
        lambda: Budget(turns=True),
        lambda: Timeout("soon"),
        lambda: RuntimeLimits(stop_seconds="soon"),
        lambda: RuntimeLimits(hops="5s"),
        lambda: talker(parallel_calls=0),
    ],
)
def test_what_is_not_a_number_or_a_duration_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(UsageError):
        make()


@pytest.mark.parametrize(
    "make",
    [
        lambda: talker(polcy={}),
        lambda: talker(output_typ=int),
        lambda: talker(hand_offs=["x"]),
        lambda: Timeout(second=1),  # type: ignore[call-arg]
        lambda: Budget(turn=1),  # type: ignore[call-arg]
        lambda: RuntimeLimits(hop=1),  # type: ignore[call-arg]
        lambda: RoundRobinTeam([talker()], terminaton=None),  # type: ignore[call-arg]
        lambda: SelectorTeam([talker()], lambda _: None, budgt=None),  # type: ignore[call-arg]
        lambda: HandoffTeam([talker()], nam="x"),  # type: ignore[call-arg]
        lambda: CodingPair(ScriptedModel("x"), polcy={}),  # type: ignore[call-arg]
        lambda: LocalRuntime(limit=RuntimeLimits()),  # type: ignore[call-arg]
    ],
)
def test_an_unknown_keyword_is_never_swallowed(make: Callable[[], object]) -> None:
    with pytest.raises(TypeError, match=r"has no keyword '.*': did you mean"):
        make()


@pytest.mark.anyio
async def test_registering_swallows_no_keyword_either() -> None:
    async with LocalRuntime(audit=False) as runtime:
        with pytest.raises(TypeError, match="has no keyword 'grant': did you mean 'grants'"):
            await runtime.register("a", AssistantAgent, grant=None)  # type: ignore[call-arg, arg-type]


@pytest.mark.parametrize(
    ("tools", "problem"),
    [
        ({"name": "python"}, "tools must be a list of tools and functions; this is dict"),
        ("python", "tools must be a list of tools and functions; this is str"),
        (PYTHON, "tools must be a list of tools and functions; this is Tool"),
        (["python"], "a tool is one of `fumehood.tools`.*this is str: 'python'"),
        ([{"name": "python"}], "a tool is one of `fumehood.tools`.*this is dict"),
        ([42], "a tool is one of `fumehood.tools`.*this is int"),
        ([PYTHON, PYTHON], "two tools of talker have the same name"),
    ],
)
def test_what_is_not_a_tool_is_refused(tools: Any, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        talker(tools=tools)


@pytest.mark.anyio
async def test_plain_functions_are_tools() -> None:
    def double(number: int) -> int:
        """Double a number."""
        return 2 * number

    async def half(number: float) -> float:
        """Halve a number."""
        return number / 2

    model = ScriptedModel([call("double", number=4), call("half", number=3)], "done")
    result = await AssistantAgent("counter", model, tools=[double, half]).run("?")
    assert [message.text for message in result.messages[2:4]] == ["8", "1.5"]


@pytest.mark.parametrize(
    ("handoffs", "problem"),
    [
        ("expert", "handoffs must be a list of agents and names of agents; this is str"),
        ([42], "handoffs must be agents and names of agents; 42 is neither"),
        ([""], "is neither"),
        (["a", "a"], "two handoffs have the name 'a'"),
        (["a", AssistantAgent("a", ScriptedModel("x"))], "two handoffs have the name 'a'"),
    ],
)
def test_what_is_not_a_target_of_a_handoff_is_refused(handoffs: Any, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        talker(handoffs=handoffs)


@pytest.mark.anyio
async def test_agents_that_are_handed_to_join_the_team() -> None:
    second = AssistantAgent("second", ScriptedModel("It is 42."), description="Knows numbers.")
    first = AssistantAgent("first", ScriptedModel(call("hand_off", to="second")), handoffs=[second])
    begin = AssistantAgent("begin", ScriptedModel(call("hand_off", to="first")), handoffs=[first, "elsewhere"])
    team = HandoffTeam([begin])
    assert team.names == ("begin", "first", "second")
    assert (await team.run("?")).text == "It is 42."
    assert HandoffTeam([begin, second, first]).names == ("begin", "second", "first")


@pytest.mark.anyio
async def test_a_model_reads_what_its_targets_are_for() -> None:
    requests: list[ModelRequest] = []

    def answer(request: ModelRequest) -> str:
        requests.append(request)
        return "hello"

    expert = AssistantAgent("expert", ScriptedModel("x"), description="Knows\nnumbers.")
    await AssistantAgent("first", ScriptedModel(answer), handoffs=[expert, "clerk"]).run("?")
    (schema,) = requests[0].tools
    target = schema["parameters"]["properties"]["to"]
    assert target["enum"] == ["expert", "clerk"]
    assert target["description"] == "Who takes over.\nexpert: Knows numbers."
