"""A task that is cancelled, at whatever moment and in whatever way, leaves no sandbox, connection or open question."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import anyio
import pytest
import sampling
from unit.agents.model_server import ModelServer, chunk, hanging, serving, text
from unit.agents.model_server import tool_call as called
from unit.agents.witness import Witness

from fumehood import Policy
from fumehood.agents import ApprovalSettings, AssistantAgent, find_model
from fumehood.agents.teams import RoundRobinTeam
from fumehood.tools import PYTHON, SHELL

pytestmark = pytest.mark.anyio

# At odd ones somebody is asked, at even ones the model hangs.
ROUNDS = sampling.amount(3, whole=6)
LONGEST_SECONDS = 0.4


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with serving() as opened:
        yield opened


async def closed(server: ModelServer) -> bool:
    """The server hears of it a moment later."""
    for _ in range(200):
        if server.open == 0:
            return True
        await anyio.sleep(0.05)
    return False


def worker(name: str, server: ModelServer, witness: Witness) -> AssistantAgent:
    return AssistantAgent(
        name,
        find_model(server.model, settings={"max_retries": 0}),
        tools=[PYTHON, SHELL],
        policy=Policy(approvals=[{"tool": "shell"}]),
        approvals=ApprovalSettings(store=witness.store),
        audit=witness.log,
    )


@pytest.mark.parametrize("manner", ["cancel", "scope", "leave"])
@pytest.mark.parametrize("who", ["agent", "team"])
async def test_nothing_is_left_of_a_task_that_is_cancelled(
    who: str, manner: str, server: ModelServer, tmp_path: Path
) -> None:
    moments = random.Random(f"{who} {manner}")
    witness = Witness(tmp_path)
    for turn in range(ROUNDS):
        server.over.clear()
        server.answers[:] = [
            called("python", '{"code": "print(1)"}', f"a{turn}"),
            called("shell", '{"command": "echo asked"}', f"b{turn}")
            if turn % 2
            else hanging(chunk({"content": "I think"})),
            text("never heard"),
        ]
        one = worker("one", server, witness)
        task = one if who == "agent" else RoundRobinTeam([one, worker("two", server, witness)], audit=witness.log)
        delay = moments.uniform(0, LONGEST_SECONDS)
        async with anyio.create_task_group() as group:
            if manner == "cancel":
                group.start_soon(task.run, "go")
                await anyio.sleep(delay)
                task.cancel()
            elif manner == "scope":
                with anyio.move_on_after(delay):
                    await task.run("go")
            else:
                with anyio.move_on_after(delay):
                    async with aclosing(task.run_stream("go")) as events:
                        async for _ in events:
                            pass
        server.over.set()
        assert witness.store.find() == []
        assert witness.open_sandboxes() == 0
        assert await closed(server)
        started, ended = len(witness.records("task.started")), len(witness.records("task.ended"))
        assert started == ended
