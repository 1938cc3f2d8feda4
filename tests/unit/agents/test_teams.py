"""Teams: who speaks when, what each of them reads and may do, when it ends, and how it goes on after a pause."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import aclosing

import anyio
import pytest
from unit.agents.witness import Witness

from fumehood import Policy, UsageError
from fumehood.agents import (
    ApprovalSettings,
    AssistantAgent,
    AssistantMessage,
    Budget,
    ModelFailure,
    ScriptedModel,
    Stop,
    ToolMessage,
    UserMessage,
    call,
)
from fumehood.agents.models.interface import ModelRequest
from fumehood.agents.teams import (
    CodingPair,
    External,
    HandedTo,
    HandoffTeam,
    MaxMessages,
    RoundRobinTeam,
    SelectorTeam,
    Spent,
    TaskProgress,
    Team,
    TerminationCondition,
    TextMention,
    Timeout,
    ToolUsed,
)
from fumehood.agents.teams.pair import code_calls
from fumehood.errors import ModelError
from fumehood.tools import PYTHON, SHELL
from fumehood.tools.approvals import ApprovalAnswer

pytestmark = pytest.mark.anyio


def talker(name: str, *lines: object, **more: object) -> AssistantAgent:
    steps = lines or tuple(f"{name} {number}" for number in range(1, 30))
    return AssistantAgent(name, ScriptedModel(*steps, name=name), **more)  # type: ignore[arg-type]


def spoken(result: object) -> list[str]:
    return [f"{m.source}: {m.text}" for m in result.messages if isinstance(m, AssistantMessage) and m.text]  # type: ignore[attr-defined]


async def test_everybody_speaks_in_turn_and_reads_what_the_others_said() -> None:
    read: list[list[str]] = []

    def note(request: ModelRequest) -> str:
        read.append([f"{message.source}: {message.text}" for message in request.messages])
        return "bob speaks"

    bob = talker("bob", note, note)
    result = await RoundRobinTeam([talker("ann"), bob], termination=MaxMessages(4)).run("go")
    assert spoken(result) == ["ann: ann 1", "bob: bob speaks", "ann: ann 2", "bob: bob speaks"]
    assert result.stop_reason.kind is Stop.CONDITION
    assert result.stop_reason.detail == "4 messages were said"
    assert read == [["user: go", "ann: ann 1"], ["user: go", "ann: ann 1", "bob: bob speaks", "ann: ann 2"]]


async def test_a_function_chooses_who_speaks() -> None:
    def select(said: Sequence[UserMessage]) -> str | None:
        return {"user": "bob", "bob": "bob", "ann": None}[said[-1].source]

    team = SelectorTeam([talker("ann"), talker("bob")], select, termination=MaxMessages(3))
    assert spoken(await team.run("go")) == ["bob: bob 1", "bob: bob 2", "bob: bob 3"]
    wrong = SelectorTeam([talker("ann"), talker("bob")], lambda said: "eve")
    with pytest.raises(UsageError, match="chose 'eve'; the names are ann, bob"):
        await wrong.run("go")


async def test_a_model_chooses_who_speaks_and_nobody_else_can_be_chosen(witness: Witness) -> None:
    answers = ScriptedModel(*[lambda request: next(script)] * 9, name="chooser")
    script = iter(["bob", "I think it is **ann**.", "eve", "bob or ann", "bobby", "nobody"])
    team = SelectorTeam([talker("ann"), talker("bob")], answers, termination=MaxMessages(4), audit=witness.log)
    assert [line[:3] for line in spoken(await team.run("go"))] == ["bob", "ann", "bob", "ann"]
    why = [record["data"]["why"] for record in witness.records("team.turn")]
    assert why == ["chooser chose", "chooser chose", "in turn", "in turn"]


async def test_a_model_that_cannot_choose_ends_the_task() -> None:
    broken = ScriptedModel(ModelError(ModelFailure.QUOTA, "no money"))
    stop = (await SelectorTeam([talker("ann")], broken).run("go")).stop_reason
    assert (stop.kind, stop.failure) == (Stop.MODEL_FAILED, ModelFailure.QUOTA)


async def test_a_task_is_handed_over_until_somebody_answers(witness: Witness) -> None:
    ann = talker("ann", call("hand_off", to="bob", message="you know Python"), handoffs=["bob"])
    bob = talker("bob", call("hand_off", to="cat", message="you know more"), handoffs=["ann", "cat"])
    cat = talker("cat", "It is 42.")
    result = await HandoffTeam([ann, bob, cat], audit=witness.log).run("What is it?")
    assert (result.text, result.stop_reason.kind) == ("It is 42.", Stop.DONE)
    heard = [message.text for message in cat.messages if isinstance(message, UserMessage)]
    assert heard == ["What is it?", "you know Python", "you know more"]
    assert [record["data"]["speaker"] for record in witness.records("team.turn")] == ["ann", "bob", "cat"]


async def test_a_task_can_be_handed_out_of_the_team() -> None:
    ann = talker("ann", call("hand_off", to="boss", message="please decide"), "decided", handoffs=["boss"])
    result = await HandoffTeam([ann]).run("go")
    assert (result.stop_reason.kind, result.stop_reason.target) == (Stop.HANDED_OFF, "boss")
    alone = talker("ann", call("hand_off", to="boss"), handoffs=["boss"])
    assert (await alone.run("go")).stop_reason.target == "boss"


async def test_nobody_can_be_handed_the_task_who_was_not_named(witness: Witness) -> None:
    ann = talker("ann", call("hand_off", to="cat"), call("hand_off", to="bob"), handoffs=["bob"])
    team = HandoffTeam([ann, talker("bob", "I have it"), talker("cat", "me!")], audit=witness.log)
    assert (await team.run("go")).text == "I have it"
    assert len(witness.records("tool.refused")) == 1


async def test_participants_have_only_their_own_tools(witness: Witness) -> None:
    ann = talker("ann", call("shell", command="id"), "no shell", tools=[PYTHON])
    bob = talker("bob", call("python", code="1"), "no python", tools=[SHELL])
    team = RoundRobinTeam([ann, bob], termination=MaxMessages(2), audit=witness.log)
    result = await team.run("go")
    refused = [message.text for message in result.messages if isinstance(message, ToolMessage)]
    assert refused == [
        "There is no tool 'shell'. The tools are: python.",
        "There is no tool 'python'. The tools are: shell.",
    ]
    assert [record["ids"]["agent"] for record in witness.records("tool.refused")] == ["ann", "bob"]
    assert witness.open_sandboxes() == 0


async def test_teams_can_be_nested() -> None:
    inner = RoundRobinTeam([talker("cat"), talker("dog")], name="pets", termination=MaxMessages(2))
    ann = talker("ann")
    result = await RoundRobinTeam([inner, ann], termination=MaxMessages(4)).run("go")
    assert spoken(result) == ["cat: cat 1", "dog: dog 1", "ann: ann 1", "cat: cat 2", "dog: dog 2", "ann: ann 2"]
    heard = [f"{m.source}: {m.text}" for m in ann.messages if isinstance(m, UserMessage)]
    assert heard == ["user: go", "pets: dog 1", "pets: dog 2"]


async def test_the_budget_of_a_team_is_for_all_of_it() -> None:
    result = await RoundRobinTeam([talker("ann"), talker("bob")], budget=Budget(turns=5)).run("go")
    assert (result.stop_reason.kind, result.stop_reason.limit, result.usage.turns) == (Stop.BUDGET, "turns", 5)
    inner = RoundRobinTeam([talker("cat")], name="pets")
    result = await RoundRobinTeam([inner], budget=Budget(turns=3)).run("go")
    assert (result.stop_reason.limit, result.usage.turns) == ("turns", 3)


async def test_a_turn_ends_in_the_middle_when_the_time_is_over(witness: Witness) -> None:
    slow = talker("ann", call("python", code="import time; time.sleep(60)"), tools=[PYTHON])
    stop = (await RoundRobinTeam([slow], budget=Budget(seconds=0.5), audit=witness.log).run("go")).stop_reason
    assert (stop.kind, stop.limit) == (Stop.BUDGET, "seconds")
    hasty = talker(
        "bob", call("python", code="import time; time.sleep(60)"), tools=[PYTHON], budget=Budget(seconds=0.5)
    )
    assert (await RoundRobinTeam([hasty]).run("go")).stop_reason.limit == "seconds"
    assert witness.open_sandboxes() == 0


WRITES = "First this:\n```python\nopen('n', 'w').write('7')\nprint('written')\n```\nand then\n```sh\ncat n; exit 3\n```"


async def test_a_writer_and_an_executor_work_until_there_is_no_more_code() -> None:
    pair = CodingPair(ScriptedModel(WRITES, "The number is 7."))
    result = await pair.run("What is the number?")
    assert (result.text, result.stop_reason.kind) == ("The number is 7.", Stop.DONE)
    assert spoken(result)[1] == "executor: Success.\nstdout:\nwritten\nFailed with exit code 3.\nstdout:\n7"


async def test_the_executor_is_under_the_policy(witness: Witness) -> None:
    pair = CodingPair(
        ScriptedModel("```sh\nrm -rf /\n```", "I may not."),
        policy=Policy(commands={"allow": ["ls"]}),
        audit=witness.log,
    )
    assert "Denied by the policy" in spoken(await pair.run("clean up"))[1]
    assert len(witness.records("request.denied")) == 1


@pytest.mark.parametrize(
    ("text", "tools"),
    [
        ("```python\nx\n```", ["python"]),
        ("```\nx\n```", []),
        ("```json\n{}\n```", []),
        ("```python\n\n```", []),
        ("```python\nno end", []),
        ("text ```python\nx\n```", []),
        ("```PY\nx\n```\n```bash title\ny\n```", ["python", "shell"]),
    ],
)
def test_blocks_of_code_are_found(text: str, tools: list[str]) -> None:
    assert [found.tool for found in code_calls(text)] == tools


def said(*texts: str) -> TaskProgress:
    messages = [AssistantMessage(source="ann", text=text) for text in texts]
    return TaskProgress([UserMessage(source="ann", text=text) for text in texts], messages, usage())


def usage(**more: float) -> object:
    from fumehood.agents import Usage

    return Usage(**more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (MaxMessages(2), True),
        (MaxMessages(3), False),
        (TextMention("DONE"), True),
        (TextMention("done"), False),
        (TextMention("DONE", by=["bob"]), False),
        (TextMention("DONE", by=["ann"]), True),
        (Timeout(5), True),
        (Timeout(50), False),
        (Spent(Budget(turns=3)), True),
        (Spent(Budget(turns=4)), False),
        (MaxMessages(2) & TextMention("DONE"), True),
        (MaxMessages(2) & TextMention("never"), False),
        (MaxMessages(9) | TextMention("DONE"), True),
        (MaxMessages(9) | TextMention("never"), False),
        (MaxMessages(9) | (TextMention("DONE") & Timeout(5)), True),
        (ToolUsed("python"), True),
        (ToolUsed("shell"), False),
        (HandedTo("bob"), True),
        (HandedTo("cat"), False),
    ],
)
def test_conditions_mean_what_they_say(condition: TerminationCondition, expected: bool) -> None:
    messages = [
        AssistantMessage(source="ann", text="it is DONE"),
        ToolMessage(source="ann", call_id="1", tool="python", status="error", text=""),  # type: ignore[arg-type]
        ToolMessage(source="ann", call_id="2", tool="shell", status="denied", text=""),  # type: ignore[arg-type]
        AssistantMessage(
            source="ann",
            calls=tuple(call("hand_off", to=to).model_copy(update={"call_id": to}) for to in ("bob", "cat")),
        ),
        ToolMessage(source="ann", call_id="bob", tool="hand_off", status="success", text=""),  # type: ignore[arg-type]
        ToolMessage(source="ann", call_id="cat", tool="hand_off", status="denied", text=""),  # type: ignore[arg-type]
    ]
    spoken = [UserMessage(source="ann", text="it is DONE"), UserMessage(source="bob", text="yes")]
    progress = TaskProgress(spoken, messages, usage(turns=3, seconds=10.0))  # type: ignore[arg-type]
    assert (condition.met(progress) is not None) is expected


async def test_somebody_outside_ends_it() -> None:
    external = External()

    def stop(request: ModelRequest) -> str:
        external.set()
        return "I was told to stop"

    team = RoundRobinTeam([talker("ann", stop)], termination=external | MaxMessages(9))
    assert (await team.run("go")).stop_reason.detail == "External.set was called"


@pytest.mark.parametrize("make", [lambda: MaxMessages(0), lambda: TextMention("")])
def test_a_condition_that_makes_no_sense_is_refused(make: object) -> None:
    with pytest.raises(UsageError):
        make()  # type: ignore[operator]


@pytest.mark.parametrize("names", [[], ["ann", "ann"], ["team"]])
def test_participants_have_names_of_their_own(names: list[str]) -> None:
    with pytest.raises(UsageError, match="must have names of their own"):
        RoundRobinTeam([talker(name) for name in names])


def test_nobody_is_called_user() -> None:
    with pytest.raises(UsageError, match="the name 'user' is the user's"):
        talker("user")


POLICY = Policy(name="careful", approvals=[{"tool": "shell"}])


def asking(witness: Witness, **more: bool) -> ApprovalSettings:
    return ApprovalSettings(store=witness.store, **more)


def crew(witness: Witness) -> Team:
    """A pair that needs a yes, in a team of its own, between two others."""
    ann, bob = talker("ann"), talker("bob")
    worker = talker(
        "worker",
        [call("shell", command="echo approved"), call("shell", command="echo twice")],
        "worked",
        tools=[SHELL],
        policy=POLICY,
        approvals=asking(witness, pauses=True),
    )
    inner = RoundRobinTeam([worker, talker("helper")], name="inner", termination=MaxMessages(2))
    return RoundRobinTeam([ann, inner, bob], termination=MaxMessages(3), audit=witness.log)


async def test_a_team_pauses_anywhere_and_goes_on_after_a_restart(witness: Witness) -> None:
    team, states = crew(witness), list[str]()
    result = await team.run("go")
    for _ in range(2):
        assert result.stop_reason.kind is Stop.APPROVAL_PENDING
        assert witness.open_sandboxes() == 0
        witness.store.answer(str(result.stop_reason.approval), ApprovalAnswer(approved=True))
        states.append(json.dumps(team.save_state()))
        team = crew(witness)
        team.load_state(json.loads(states[-1]))
        task_id, result = result.task_id, await team.resume()
        assert result.task_id == task_id
    assert spoken(result) == ["ann: ann 1", "worker: worked", "helper: helper 1", "bob: bob 1"]
    assert result.stop_reason.detail == "3 messages were said"
    done = [message.text for message in result.messages if isinstance(message, ToolMessage)]
    assert [text.splitlines()[2] for text in done] == ["approved", "twice"]
    assert witness.store.find() == []


async def test_a_team_that_is_given_up_leaves_no_question(witness: Witness) -> None:
    team = crew(witness)
    await team.run("go")
    await team.abandon()
    assert witness.store.find() == []


async def test_a_state_of_another_team_is_refused(witness: Witness) -> None:
    state = crew(witness).save_state()
    other = RoundRobinTeam([talker("ann")])
    with pytest.raises(UsageError, match="other participants than"):
        other.load_state(state)
    with pytest.raises(UsageError, match="turn: Input should be"):
        other.load_state({**other.save_state(), "turn": "x"})


async def test_cancelling_a_team_leaves_nothing(witness: Witness) -> None:
    slow = talker("slow", call("shell", command="echo x"), tools=[SHELL], policy=POLICY, approvals=asking(witness))
    team = RoundRobinTeam([talker("ann", tools=[PYTHON]), slow], audit=witness.log)
    async with aclosing(team.run_stream("go")) as events:
        async for event in events:
            if event.kind == "approval.asked":
                with pytest.raises(UsageError, match="slow is at work on another task"):
                    await slow.run("something else")
                team.cancel()
    assert witness.store.find() == []
    assert witness.open_sandboxes() == 0
    with anyio.fail_after(30):
        await slow.abandon()
