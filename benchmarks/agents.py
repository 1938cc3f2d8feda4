"""What the agent layer adds to a run: a turn of a scripted model, filters, records, and the call itself."""

from __future__ import annotations

from collections.abc import AsyncIterator

from fumehood.agents import AssistantAgent, ScriptedModel, call
from fumehood.cli.bench.measurement import Row, in_turns
from fumehood.cli.bench.runs import PROGRAM
from fumehood.tools import PYTHON

_CALLS = 10


async def measure(rounds: int) -> AsyncIterator[Row]:
    model = ScriptedModel(*[call("python", code=PROGRAM)] * _CALLS, "done")
    agent = AssistantAgent("bench", model, tools=[PYTHON])
    afresh = agent.save_state()

    async def task() -> None:
        agent.load_state(afresh)
        result = await agent.run("go")
        if result.text != "done":
            raise RuntimeError(f"the task ended otherwise: {result.stop_reason}")

    async def bare() -> None:
        box = agent.sandbox
        assert box is not None
        for _ in range(_CALLS):
            await box.run(PROGRAM)

    async with agent:
        ours, baseline = await in_turns(max(3, rounds // 4), task, bare)
    yield Row("tool call of an agent / bare run", ours / _CALLS, against=baseline / _CALLS)
