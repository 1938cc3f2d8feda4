"""Messages per second of the local runtime, side by side with AutoGen's, and what the audit log costs there."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol

import anyio

from fumehood.audit import AuditLog
from fumehood.cli.bench.rows import Row
from fumehood.cli.bench.timing import AsyncJob, in_turns
from fumehood.runtime import Grants, LocalRuntime, Message, handles

_MESSAGES = 256
_AT_ONCE = 64


class Greeting(Message):
    name: str


class Reply(Message):
    text: str


class Side(Protocol):
    """One of those who are compared: each call is one message."""

    async def ask(self) -> None: ...

    async def publish(self) -> None: ...


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


_SHAPES: dict[str, Shape] = {
    "messages answered": _one_after_the_other,
    f"messages answered, {_AT_ONCE} at once": _at_once,
    "messages published": _published,
}


class OurSide:
    def __init__(self, runtime: LocalRuntime) -> None:
        self._runtime = runtime

    async def ask(self) -> None:
        await self._runtime.send(Greeting(name="Anna"), to="greeter")

    async def publish(self) -> None:
        await self._runtime.publish(Greeting(name="Anna"), topic="news")


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
            yield OurSide(runtime)

    return open_side


def _rival() -> OpenSide | None:
    try:
        from fumehood.cli.bench.autogen_agents import open_side
    except ImportError:
        return None
    return open_side
