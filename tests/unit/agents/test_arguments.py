"""What agents, teams and runtimes take: policies and durations in every form, and nothing that they do not know."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fumehood import Policy
from fumehood.agents import AssistantAgent, Budget, ScriptedModel
from fumehood.agents.teams import CodingPair, HandoffTeam, RoundRobinTeam, SelectorTeam, Timeout
from fumehood.errors import PolicyError, UsageError
from fumehood.runtime import LocalRuntime, RuntimeLimits


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
    with pytest.raises(UsageError, match="policy must be a Policy, a mapping or the path of a policy file"):
        talker(policy=42)
    with pytest.raises(PolicyError, match=r"missing\.yaml: cannot be read"):
        talker(policy="missing.yaml")
    with pytest.raises(UsageError, match=r"a tool is one of `fumehood.tools`"):
        talker(tools=[{"name": "python"}])


def test_durations_are_spelled_as_in_policies() -> None:
    assert Budget(seconds="2m").seconds == 120  # type: ignore[arg-type]
    assert Timeout("500ms").seconds == 0.5  # type: ignore[arg-type]
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
