"""The terminal in front of `hood shell`: keys go to the program in the sandbox, and its output comes back."""

from __future__ import annotations

import os
import signal
import termios
import tty
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager

import anyio

from fumehood.events import Event, Stdout
from fumehood.results import RunResult
from fumehood.sandbox.async_sandbox import AsyncSandbox
from fumehood.sandbox.background import AsyncBackgroundRun

_CHUNK_BYTES = 4096


def run_shell(box: AsyncSandbox, command: list[str], environment: dict[str, str]) -> RunResult:
    return anyio.run(_converse, box, command, environment)


async def _converse(box: AsyncSandbox, command: list[str], environment: dict[str, str]) -> RunResult:
    size = os.get_terminal_size(1)
    environment = {"TERM": os.environ.get("TERM", "dumb"), **environment}
    async with box:
        run = await box.start(argv=command, env=environment, terminal=(size.columns or 80, size.lines or 24))
        with _raw_terminal():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_type, run)
                tasks.start_soon(_follow_size, run)
                await _show(run.stream())
                tasks.cancel_scope.cancel()
        return await run.wait()


@contextmanager
def _raw_terminal() -> Iterator[None]:
    """Every key goes to the program; the terminal is as before when the block ends, whatever ends it."""
    before = termios.tcgetattr(0)
    tty.setraw(0)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


async def _type(run: AsyncBackgroundRun) -> None:
    """What is typed, until our own terminal is gone: then so is the reason for the program to go on."""
    while True:
        await anyio.wait_readable(0)
        try:
            data = os.read(0, _CHUNK_BYTES)
        except OSError:
            data = b""
        if not data:
            await run.kill()
            return
        await run.write(data)


async def _follow_size(run: AsyncBackgroundRun) -> None:
    with anyio.open_signal_receiver(signal.SIGWINCH, signal.SIGTERM, signal.SIGHUP) as signals:
        async for number in signals:
            if number != signal.SIGWINCH:
                await run.kill()
                return
            size = os.get_terminal_size(1)
            await run.resize(size.columns or 80, size.lines or 24)


async def _show(stream: AsyncGenerator[Event, None]) -> None:
    async with aclosing(stream) as events:
        async for event in events:
            if isinstance(event, Stdout):  # a terminal has one stream
                await _write(event.data)


async def _write(data: bytes) -> None:
    """Blocking would stop the keyboard too: a terminal that is stopped with Ctrl-S could never be started again."""
    rest = memoryview(data)
    while rest:
        await anyio.wait_writable(1)
        rest = rest[os.write(1, rest[:_CHUNK_BYTES]) :]
