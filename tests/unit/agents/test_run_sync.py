"""`run_sync`: tasks for callers without an event loop, and inside of one."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator

import pytest
from unit.agents.witness import Witness

from fumehood import UsageError
from fumehood.agents import AssistantAgent, ScriptedModel, Stop, call
from fumehood.agents.models.interface import ModelRequest
from fumehood.agents.teams import CodingPair, RoundRobinTeam, TextMention
from fumehood.tools import PYTHON


def adder(**options: object) -> AssistantAgent:
    model = ScriptedModel(call("python", code="print(6 * 7)"), "It is 42.", "Still.")
    return AssistantAgent("adder", model, tools=[PYTHON], **options)  # type: ignore[arg-type]


def test_an_agent_runs_without_an_event_loop() -> None:
    agent = adder()
    assert agent.run_sync("?").output == "It is 42."
    assert agent.run_sync("And now?").output == "Still."  # the conversation goes on


@pytest.mark.anyio
async def test_an_agent_runs_inside_of_a_running_event_loop() -> None:
    assert adder().run_sync("?").text == "It is 42."


def test_a_team_runs_without_an_event_loop() -> None:
    critic = AssistantAgent("critic", ScriptedModel("APPROVED"))
    result = RoundRobinTeam([adder(), critic], termination=TextMention("APPROVED")).run_sync("?")
    assert result.stop_reason.kind is Stop.CONDITION
    code = ScriptedModel("```python\nprint(1)\n```", "It is 1.")
    assert CodingPair(code).run_sync("?").output == "It is 1."


def test_an_error_of_the_application_is_raised_as_it_is() -> None:
    def broken(request: ModelRequest) -> str:
        raise LookupError("nothing here")

    with pytest.raises(LookupError, match="nothing here"):
        AssistantAgent("broken", ScriptedModel(broken)).run_sync("?")


@pytest.fixture
def interruptible() -> Iterator[None]:
    """As in a program at a terminal: a process that was started in the background ignores SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_gets_through_and_leaves_nothing(witness: Witness) -> None:
    ended = threading.Event()

    async def wait() -> str:
        """Wait for ever."""
        try:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    agent = AssistantAgent("waiter", ScriptedModel(call("wait")), tools=[wait, PYTHON], audit=witness.log)
    before = set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt):
        agent.run_sync("?")
    assert ended.is_set()
    assert witness.open_sandboxes() == 0
    assert [record["data"]["stop"] for record in witness.records("task.ended")] == ["cancelled"]
    assert [each for each in threading.enumerate() if each.name == "fumehood" and each not in before] == []
    assert agent.run_sync("?").stop_reason.kind is Stop.MODEL_FAILED  # it can go on: the script has no second step


@pytest.mark.anyio
async def test_an_agent_that_is_open_in_another_loop_is_refused() -> None:
    async with adder() as agent:
        with pytest.raises(UsageError, match="adder is already open in another event loop"):
            agent.run_sync("?")
        assert (await agent.run("?")).text == "It is 42."
        team = RoundRobinTeam([agent])
        with pytest.raises(UsageError, match="adder is already open in another event loop"):
            team.run_sync("?")
