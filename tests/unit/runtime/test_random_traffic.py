"""Agents that do anything at all, with senders that give up at any moment: nothing is lost, stuck or left over."""

from __future__ import annotations

import random
from contextlib import suppress

import anyio
import anyio.lowlevel
import pytest
from unit.runtime.sample_agents import MakeRuntime

from fumehood.errors import FumehoodError
from fumehood.runtime import (
    AgentId,
    Grants,
    LocalRuntime,
    Message,
    MessageContext,
    RuntimeAgent,
    RuntimeLimits,
    handles,
)

pytestmark = pytest.mark.anyio

TYPES = ("red", "green", "blue")
LIMITS = RuntimeLimits(handlers=3, queue_messages=2, hops=6, agents=7, deadline_seconds=20)


class Chaos(Message):
    seed: int


class Agent(RuntimeAgent):
    def __init__(self, rng: random.Random) -> None:
        if rng.random() < 0.1:
            raise OSError("cannot be made")

    @handles
    async def act(self, message: Chaos, context: MessageContext) -> Chaos | None:
        rng = random.Random(message.seed)
        for _ in range(rng.randrange(3)):
            await self._step(rng, context)
        return rng.choice([None, message])

    async def _step(self, rng: random.Random, context: MessageContext) -> None:
        chaos, someone = Chaos(seed=rng.randrange(10**9)), f"{rng.choice(TYPES)}/{rng.randrange(3)}"
        match rng.randrange(6):
            case 0:
                await anyio.lowlevel.checkpoint()
            case 1:
                await context.publish(chaos, topic=f"{rng.choice(TYPES)}/{rng.randrange(3)}", deadline=0.05)
            case 2:
                with anyio.move_on_after(rng.random() / 1000):
                    await context.send(chaos, to=someone)
            case 3:
                raise ValueError("enough")
            case 4:
                async with anyio.create_task_group() as group:
                    for number in range(2):
                        group.start_soon(_try, context, Chaos(seed=number), someone)
            case _:
                await _try(context, chaos, someone)


async def _try(speaker: MessageContext | LocalRuntime, message: Chaos, to: str) -> None:
    with suppress(FumehoodError):
        await speaker.send(message, to=to, deadline=0.05)


@pytest.mark.parametrize("seed", range(8))
async def test_after_any_turmoil_the_runtime_is_as_it_was(make_runtime: MakeRuntime, seed: int) -> None:
    rng = random.Random(seed)
    async with make_runtime(limits=LIMITS) as runtime:
        for name in TYPES:
            grants = Grants(agents=["*"], publish=["*"], subscribe=["*"])
            await runtime.register(
                name,
                Agent,
                make=lambda _: Agent(rng),
                grants=grants,
                subscriptions=TYPES,
                at_once=rng.choice([1, 1, 3]),
            )
        for _ in range(3):
            with anyio.move_on_after(rng.random() / 10):
                async with anyio.create_task_group() as group:
                    for _ in range(15):
                        message, to = Chaos(seed=rng.randrange(10**9)), f"{rng.choice(TYPES)}/{rng.randrange(3)}"
                        group.start_soon(_try, runtime, message, to)
            await runtime.idle()
            await anyio.wait_all_tasks_blocked()
            assert runtime._scheduler.slots._free == LIMITS.handlers
            assert (runtime._pending._open, runtime._dispatcher.answering) == ({}, {})
            assert all(mailbox.is_idle for mailbox in runtime._registry.mailboxes())
        for name in TYPES:
            await _still_works(runtime, AgentId(name, "0"))


async def _still_works(runtime: LocalRuntime, agent: AgentId) -> None:
    """A seed whose agent does nothing but answer; making it may fail, and then does not fail for ever."""
    quiet = next(seed for seed in range(1000) if random.Random(seed).randrange(3) == 0)
    for _ in range(50):
        try:
            await runtime.send(Chaos(seed=quiet), to=agent)
            return
        except FumehoodError:
            await runtime.idle()
            for mailbox in runtime._registry.mailboxes():
                await runtime.retire(mailbox.id)
    pytest.fail(f"{agent} does not answer any more")
