"""Messages per second of the local runtime, side by side with AutoGen's, and what the audit log costs there."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol

import anyio

from fumehood.audit import AuditLog
from fumehood.cli.bench.measurement import AsyncJob, Row, in_turns
from fumehood.runtime import Grants, LocalRuntime, Message, MessageContext, RuntimeAgent, handles

_MESSAGES = 256
_AT_ONCE = 64
_RALLY = 16
NEIGHBOURS = ("left", "right")


class Greeting(Message):
    name: str


class Reply(Message):
    text: str


class Ball(Message):
    left: int


class Side(Protocol):
    """One of those who are compared. Besides a greeter and a listener it has two neighbours."""

    async def ask(self) -> None:
        """One message with an answer."""

    async def publish(self) -> None: ...

    async def ask_neighbour(self, name: str) -> None:
        """Has this neighbour ask the other one something."""

    async def throw(self, name: str, ball: int) -> None:
        """Publishes to this neighbour, which publishes to the other one, and so on, so often."""


OpenSide = Callable[[Callable[[], None]], AbstractAsyncContextManager[Side]]
Shape = Callable[[Side, "Tally"], AsyncJob]


class Tally:
    """Counts what listeners hear."""

    def __init__(self) -> None:
        self._left, self._is_done = 0, anyio.Event()

    def expect(self, count: int) -> None:
        self._left, self._is_done = count, anyio.Event()

    def heard(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._is_done.set()

    async def wait(self) -> None:
        await self._is_done.wait()


async def measure(rounds: int) -> AsyncIterator[Row]:
    rival, few = _rival(), max(3, rounds // 6)
    with tempfile.TemporaryDirectory(prefix="hood-bench-", dir="/var/tmp") as folder:
        log = AuditLog.at(Path(folder, "audit"))
        for name, shape in _SHAPES.items():
            without, with_log = _ours(None), _ours(log)
            if rival is None:
                yield Row(f"{name} / AutoGen", missing="AutoGen is not installed here")
            else:
                ours, theirs = await _per_second(few, shape, without, rival)
                yield Row(f"{name} / AutoGen", ours, "/s", against=theirs, budget=">= 1x")
            audited, unaudited = await _per_second(few, shape, with_log, without)
            yield Row(f"{name}, audit on / off", audited, "/s", against=unaudited)


async def _per_second(rounds: int, shape: Shape, one: OpenSide, other: OpenSide) -> list[float]:
    tallies = Tally(), Tally()
    async with one(tallies[0].heard) as first, other(tallies[1].heard) as second:
        taken = await in_turns(rounds, shape(first, tallies[0]), shape(second, tallies[1]))
    return [_MESSAGES / milliseconds * 1000 for milliseconds in taken]


def _one_after_the_other(side: Side, tally: Tally) -> AsyncJob:
    async def run() -> None:
        for _ in range(_MESSAGES):
            await side.ask()

    return run


def _at_once(side: Side, tally: Tally) -> AsyncJob:
    async def some() -> None:
        for _ in range(_MESSAGES // _AT_ONCE):
            await side.ask()

    async def run() -> None:
        async with anyio.create_task_group() as group:
            for _ in range(_AT_ONCE):
                group.start_soon(some)

    return run


def _published(side: Side, tally: Tally) -> AsyncJob:
    async def run() -> None:
        tally.expect(_MESSAGES)
        for _ in range(_MESSAGES):
            await side.publish()
        await tally.wait()

    return run


def _asking_each_other(side: Side, tally: Tally) -> AsyncJob:
    async def run() -> None:
        for _ in range(_MESSAGES // 4):
            async with anyio.create_task_group() as group:
                for name in NEIGHBOURS:
                    group.start_soon(side.ask_neighbour, name)

    return run


def _publishing_to_each_other(side: Side, tally: Tally) -> AsyncJob:
    async def run() -> None:
        tally.expect(_MESSAGES)
        for _ in range(_MESSAGES // (len(NEIGHBOURS) * _RALLY)):
            for name in NEIGHBOURS:
                await side.throw(name, _RALLY)
        await tally.wait()

    return run


_SHAPES: dict[str, Shape] = {
    "messages answered": _one_after_the_other,
    f"messages answered, {_AT_ONCE} at once": _at_once,
    "messages published": _published,
    "agents that ask each other at once": _asking_each_other,
    "agents that publish to each other": _publishing_to_each_other,
}


class OurSide:
    def __init__(self, runtime: LocalRuntime) -> None:
        self._runtime = runtime

    async def ask(self) -> None:
        await self._runtime.send(Greeting(name="Anna"), to="greeter")

    async def publish(self) -> None:
        await self._runtime.publish(Greeting(name="Anna"), topic="news")

    async def ask_neighbour(self, name: str) -> None:
        await self._runtime.send(Greeting(name="Anna"), to=name)

    async def throw(self, name: str, ball: int) -> None:
        await self._runtime.publish(Ball(left=ball), topic=name)


class Neighbour(RuntimeAgent):
    def __init__(self, heard: Callable[[], None]) -> None:
        self._heard = heard

    @handles
    async def ask(self, message: Greeting, context: MessageContext) -> Reply:
        return await context.send(Reply(text="How are you?"), to=other_than(context.id.type), reply=Reply)

    @handles
    async def answer(self, message: Reply) -> Reply:
        return message

    @handles
    async def hit(self, message: Ball, context: MessageContext) -> None:
        self._heard()
        if message.left > 1:
            await context.publish(Ball(left=message.left - 1), topic=other_than(context.id.type))


def other_than(name: str) -> str:
    return NEIGHBOURS[1 - NEIGHBOURS.index(name)]


def _ours(log: AuditLog | None) -> OpenSide:
    @handles
    async def greet(message: Greeting) -> Reply:
        return Reply(text=f"Hello {message.name}")

    @asynccontextmanager
    async def open_side(heard: Callable[[], None]) -> AsyncIterator[Side]:
        async def hear(message: Greeting) -> None:
            heard()

        async with LocalRuntime(audit=log or False) as runtime:
            await runtime.register("greeter", greet)
            await runtime.register("listener", handles(hear), grants=Grants(subscribe=["news"]), subscriptions=["news"])
            grants = Grants(agents=NEIGHBOURS, publish=NEIGHBOURS, subscribe=NEIGHBOURS)
            for name in NEIGHBOURS:
                await runtime.register(
                    name, Neighbour, make=lambda _: Neighbour(heard), grants=grants, subscriptions=[name]
                )
            yield OurSide(runtime)

    return open_side


def _rival() -> OpenSide | None:
    try:
        from benchmarks.autogen_agents import open_side
    except ImportError:
        return None
    return open_side
