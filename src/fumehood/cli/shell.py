"""`hood shell`: a shell in a sandbox, with this terminal in front of it."""

from __future__ import annotations

import argparse
import os
import signal
import termios
import tty
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager

import anyio

from fumehood.backends.native.prestart import Prestart
from fumehood.backends.selection import use_prestart
from fumehood.cli import exitcodes, overrides, policy_choice
from fumehood.cli.arguments import Parser, split
from fumehood.cli.output import say
from fumehood.errors import UsageError
from fumehood.events import Event, Stdout
from fumehood.policy import Policy
from fumehood.results import Cause, RunResult
from fumehood.sandbox.async_sandbox import AsyncSandbox
from fumehood.sandbox.background import AsyncBackgroundRun

_USAGE = "hood shell [options] [-- COMMAND ...]"
_DETAILS = """\
Ctrl-C, Ctrl-Z and Ctrl-D are the shell's; `exit` leaves. What you write to
/workspace is gone with the sandbox. Without --policy the shell may stay open
for 12 hours, unless hood.yaml has a timeout. Exit code: the shell's own, else
as `hood run`.

A program in the sandbox writes to your terminal as it is: one that you do not
trust at all belongs into `hood run`, which shows text and colours only.
"""
_CHUNK_BYTES = 4096
# Tells it apart from the shell outside.
_PROMPT = r"(hood) \w \$ "


def build_parser() -> argparse.ArgumentParser:
    description = "Open an interactive shell (or another command) in a fresh sandbox."
    parser = Parser(prog="hood shell", usage=_USAGE, description=description, epilog=_DETAILS)
    overrides.add_options(parser)
    return parser


def execute(arguments: list[str], prestart: Prestart) -> int:
    ours, command = split(arguments)
    chosen = build_parser().parse_args(ours, namespace=overrides.Arguments())
    if not (os.isatty(0) and os.isatty(1)):
        raise UsageError("hood shell needs a terminal; `hood run --language sh -` takes a script on standard input")
    # An interactive shell ends when its user leaves; a run's usual limits would end it in the middle of a word.
    policy = overrides.load_policy(chosen, Policy(resources={"timeout": "12h", "output": "1G"}))
    policy_choice.tell(chosen)
    use_prestart(policy, prestart)
    environment = overrides.environment(chosen.env, os.environ)
    if not command:
        command, environment = ["bash"], {"PS1": _PROMPT, **environment}
    result = anyio.run(_converse, policy, command, environment)
    overrides.tell_denials(chosen, result.denials)
    if result.cause is not Cause.EXIT:
        say(f"{result.status} ({result.cause}): {overrides.name_flags(result.detail)}")
    return exitcodes.for_result(result)


async def _converse(policy: Policy, command: list[str], environment: dict[str, str]) -> RunResult:
    size = os.get_terminal_size(1)
    environment = {"TERM": os.environ.get("TERM", "dumb"), **environment}
    async with AsyncSandbox(policy, progress=say) as box:
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
