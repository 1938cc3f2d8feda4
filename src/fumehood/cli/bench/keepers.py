"""`hood run` as it is typed: cold, and done by a keeper of the measurement's own."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from tempfile import TemporaryDirectory
from typing import Any

import anyio

from fumehood.cli.bench.measurement import Row, command, in_turns, memory_kib
from fumehood.cli.bench.runs import compiled, hood_run, plain_python
from fumehood.cli.keeper.command import ask
from fumehood.errors import SandboxError

_SECONDS = 60.0
_PAUSE_SECONDS = 0.05


def without_keeper() -> dict[str, str]:
    return {**compiled(), "FUMEHOOD_KEEPER": "off"}


@asynccontextmanager
async def own_keeper(hood: list[str]) -> AsyncIterator[dict[str, str]]:
    """The variables with which `hood run` is done by a keeper that is there for this block alone."""
    with TemporaryDirectory() as folder:
        variables = {**compiled(), "FUMEHOOD_KEEPER": "on", "XDG_RUNTIME_DIR": folder}
        command(hood, variables)()
        await _status(variables)
        try:
            yield variables
        finally:
            await _wait_until(lambda: ask("stop", _encoded(variables)) is None)


async def measure(rounds: int) -> AsyncIterator[Row]:
    cold, quick = "hood run, cold / python -I -S", "hood run with a keeper / python -I -S"
    hood = hood_run()
    if hood is None:
        yield Row(cold, missing="the hood command is not on the path")
        return
    ours, baseline = await in_turns(max(3, rounds // 4), command(hood, without_keeper()), command(plain_python()))
    yield Row(cold, ours, against=baseline)
    async with own_keeper(hood) as variables:
        ours, baseline = await in_turns(rounds, command(hood, variables), command(plain_python()))
        yield Row(quick, ours, against=baseline, budget="<= 2.5x")
        answer = await _status(variables)
        if answer["served"] < rounds:
            raise SandboxError(f"the keeper did {answer['served']} of {rounds} runs")
        yield Row("memory of an idle keeper, without its cells", _shared_out_mib(answer), "M", budget="<= 60 M")


async def _status(variables: dict[str, str]) -> dict[str, Any]:
    await _wait_until(lambda: ask("status", _encoded(variables)) is not None)
    return ask("status", _encoded(variables)) or {}


async def _wait_until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(_SECONDS):
        while not condition():  # noqa: ASYNC110  # another process, which announces nothing
            await anyio.sleep(_PAUSE_SECONDS)


def _shared_out_mib(answer: dict[str, Any]) -> float:
    """Pages that several processes share count in parts: workers are forks of the resident."""
    return sum(memory_kib(process, "Pss:") for process in (answer["process"], *answer["workers"])) / 1024


def _encoded(variables: dict[str, str]) -> dict[bytes, bytes]:
    return {os.fsencode(name): os.fsencode(value) for name, value in variables.items()}
