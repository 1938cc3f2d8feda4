"""Conversations that become too long: what the model reads of them, and what always stays."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from unit.agents.witness import Witness

from fumehood.agents import (
    AssistantAgent,
    AssistantMessage,
    Budget,
    CallRequest,
    ChatMessage,
    CompactionInput,
    ModelFailure,
    OldestFirst,
    ScriptedModel,
    Stop,
    ToolMessage,
    UserMessage,
    call,
)
from fumehood.agents.memory import tokens_of
from fumehood.agents.models import ModelAnswer, ModelRequest
from fumehood.errors import ModelError, UsageError
from fumehood.tools.result import ToolStatus

pytestmark = pytest.mark.anyio

LONG = "line of output\n" * 400


def turns(count: int, text: str = LONG) -> list[ChatMessage]:
    found: list[ChatMessage] = [UserMessage(text="the task")]
    for number in range(count):
        calls = tuple(CallRequest(call_id=f"{number}.{n}", tool="t", arguments="{}") for n in range(2))
        found.append(AssistantMessage(source="a", text=f"step {number}", calls=calls))
        found += [
            ToolMessage(source="a", call_id=each.call_id, tool="t", status=ToolStatus.SUCCESS, text=text)
            for each in calls
        ]
    return found


async def nobody(_: str) -> str:
    raise AssertionError("nobody is asked")


async def compacted(messages: list[ChatMessage], tokens: int, strategy: OldestFirst | None = None) -> list[ChatMessage]:
    conversation = CompactionInput(tuple(messages), frozenset({0}), tokens, nobody)
    return list(await (strategy or OldestFirst()).compact(conversation))


def check_pairs(messages: Sequence[ChatMessage]) -> None:
    asked = [each.call_id for message in messages if isinstance(message, AssistantMessage) for each in message.calls]
    assert asked == [message.call_id for message in messages if isinstance(message, ToolMessage)]


async def test_old_results_are_abbreviated_first() -> None:
    messages = turns(20)
    found = await compacted(messages, tokens_of(messages) // 2)
    assert len(found) == len(messages)
    assert tokens_of(found) <= tokens_of(messages) // 2
    check_pairs(found)
    first, last = found[2], found[-1]
    assert "left out" in first.text
    assert len(first.text) < 600
    assert last.text == LONG


async def test_then_the_oldest_turns_are_left_out_and_the_task_and_the_last_turns_stay() -> None:
    messages = turns(200, "short")
    found = await compacted(messages, 600)
    assert tokens_of(found) <= 700
    assert found[0] == messages[0]
    assert found[-12:] == messages[-12:]
    check_pairs(found)
    (note,) = (message for message in found if message.source == "note")
    assert f"[{len(messages) - len(found) + 1} earlier messages were left out here" in note.text


async def test_at_last_the_last_turns_are_abbreviated_too_but_for_the_last_one() -> None:
    messages = turns(3)
    found = await compacted(messages, 10)
    assert [len(message.text) > 1000 for message in found if isinstance(message, ToolMessage)] == [False] * 4 + [
        True
    ] * 2
    check_pairs(found)


async def test_whatever_is_wanted_the_task_stays_and_calls_keep_their_results() -> None:
    for count in range(12):
        for tokens in (1, 100, 3000):
            for kept in (1, 3):
                messages = turns(count)
                found = await compacted(messages, tokens, OldestFirst(turns=kept))
                assert found[0] == messages[0]
                check_pairs(found)


async def test_what_is_left_out_can_be_summarised() -> None:
    asked: list[str] = []

    async def ask(text: str) -> str:
        asked.append(text)
        return "Nothing worked."

    conversation = CompactionInput(tuple(turns(50, "short")), frozenset({0}), 200, ask)
    found = await OldestFirst(summarise=True).compact(conversation)
    (note,) = (message for message in found if message.source == "note")
    assert note.text.endswith("Summary of them:\nNothing worked.")
    assert "step 0" in asked[0]


async def test_without_a_summary_it_is_left_out_all_the_same() -> None:
    async def fail(_: str) -> str:
        raise ModelError("timeout", "it is silent")

    conversation = CompactionInput(tuple(turns(50, "short")), frozenset({0}), 200, fail)
    found = await OldestFirst(summarise=True).compact(conversation)
    assert "There is no summary" in found[1].text


def test_a_strategy_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(UsageError, match=r"OldestFirst\.turns must be 1 or more"):
        OldestFirst(turns=0)


async def test_an_agent_goes_on_for_ever_in_a_bounded_window(witness: Witness) -> None:
    """A conversation many times as long as what the model reads; the application has all of it."""
    longest = 0
    steps = 0

    def work(number: int) -> str:
        """Work."""
        return f"{number} {LONG}"

    def step(request: ModelRequest) -> str | CallRequest:
        nonlocal longest, steps
        longest = max(longest, tokens_of(request.messages))
        assert request.messages[0] == UserMessage(text="the task")
        assert request.instructions == "Be patient."
        check_pairs(request.messages)
        steps += 1
        return call("work", number=steps) if steps < 40 else "done"

    model = ScriptedModel(*[step] * 40)
    agent = AssistantAgent(
        "a",
        model,
        tools=[work],
        instructions="Be patient.",
        audit=witness.log,
        compaction=OldestFirst(tokens=10_000),
    )
    events = [event async for event in agent.run_stream("the task")]
    assert (steps, agent.messages[-1].text) == (40, "done")
    assert longest <= 10_000
    assert tokens_of(agent.messages) > 50_000
    assert len(agent.messages) == 1 + 39 * 2 + 1
    told = [event for event in events if event.kind == "compacted"]
    assert told
    assert {event.to_dict()["why"] for event in told} == {"limit"}
    assert len(witness.records("model.compacted")) == len(told)
    # Another process begins with all of it.
    other = AssistantAgent("a", ScriptedModel("hello"), compaction=OldestFirst(tokens=10_000))
    other.load_state(agent.save_state())
    assert other.messages == agent.messages


async def test_a_strategy_of_ones_own_takes_its_place(witness: Witness) -> None:
    class OnlyTheTask:
        tokens = 10

        async def compact(self, conversation: CompactionInput) -> Sequence[ChatMessage]:
            return [conversation.messages[index] for index in sorted(conversation.task)]

    seen: list[int] = []

    def step(request: ModelRequest) -> str:
        seen.append(len(request.messages))
        return "word " * 20

    agent = AssistantAgent("a", ScriptedModel(*[step] * 9), audit=witness.log, compaction=OnlyTheTask())
    for _ in range(4):
        await agent.run("a task of some words that is long enough")
    assert seen == [1] * 4


class Summarising:
    """Asks the model for a summary of everything but the task."""

    tokens = 5

    async def compact(self, conversation: CompactionInput) -> Sequence[ChatMessage]:
        await conversation.ask("What happened?")
        return [conversation.messages[index] for index in sorted(conversation.task)]


@pytest.mark.parametrize(
    ("budget", "limit"), [(Budget(turns=1), "turns"), (Budget(cost=1.0), "cost"), (Budget(tokens=3), "tokens")]
)
async def test_a_summary_leaves_no_more_of_the_budget_than_there_was(
    budget: Budget, limit: str, witness: Witness
) -> None:
    asked: list[str] = []

    def step(request: ModelRequest) -> ModelAnswer:
        asked.append(request.messages[0].text)
        return ModelAnswer(text="ok", input_tokens=2, output_tokens=1, cost=1.0)

    agent = AssistantAgent("a", ScriptedModel(step), audit=witness.log, budget=budget, compaction=Summarising())
    result = await agent.run("a task of some words that is long enough")
    assert (result.stop_reason.kind, result.stop_reason.limit) == (Stop.BUDGET, limit)
    assert (asked, result.usage.turns) == (["What happened?"], 1)


async def test_a_request_that_was_too_long_counts_before_anything_else_is_asked(witness: Witness) -> None:
    asked: list[str] = []

    def overflow(request: ModelRequest) -> str:
        asked.append(request.messages[-1].text)
        raise ModelError(ModelFailure.CONTEXT_OVERFLOW, "too long")

    class OnlyAfterOverflow(Summarising):
        tokens = 1_000_000

    agent = AssistantAgent(
        "a", ScriptedModel(overflow), audit=witness.log, budget=Budget(turns=1), compaction=OnlyAfterOverflow()
    )
    result = await agent.run("the task")
    assert (result.stop_reason.kind, result.stop_reason.limit) == (Stop.BUDGET, "turns")
    assert (asked, result.usage.turns) == (["the task"], 1)


async def test_a_summary_that_fails_counts_as_a_request(witness: Witness) -> None:
    class Forgiving(Summarising):
        async def compact(self, conversation: CompactionInput) -> Sequence[ChatMessage]:
            with pytest.raises(ModelError):
                await super().compact(conversation)
            return conversation.messages

    def step(request: ModelRequest) -> str:
        if request.messages[0].text == "What happened?":
            raise ModelError(ModelFailure.SERVER, "it fell over")
        return "done"

    agent = AssistantAgent("a", ScriptedModel(step), audit=witness.log, compaction=Forgiving())
    result = await agent.run("a task of some words that is long enough")
    assert (result.text, result.usage.turns) == ("done", 2)
