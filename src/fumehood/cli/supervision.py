"""One run, watched by a person or a script: its output goes where ours goes, and a signal to us ends it."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

import anyio

from fumehood.cli.interruption import Interruption, StoppedError
from fumehood.cli.messages import say
from fumehood.cli.outlet import Outlet
from fumehood.errors import FumehoodError
from fumehood.events import Event, Finished, Stderr, Stdout
from fumehood.policy import Policy
from fumehood.requests import RunOptions
from fumehood.results import Display, RunResult
from fumehood.sandbox import Sandbox

Work = Callable[[Sandbox], Awaitable[RunResult]]


def run_silently(policy: Policy, code: bytes, options: RunOptions, interruption: Interruption) -> RunResult:
    """The output is in the result."""
    return _supervise(policy, lambda box: box.run(code, **options), interruption)


def run_live(policy: Policy, code: bytes, options: RunOptions, interruption: Interruption) -> RunResult:
    """The output appears while the program runs; the result is without it."""
    outlets = (Outlet(1, interruption), Outlet(2, interruption))

    async def work(box: Sandbox) -> RunResult:
        return await _show(box.stream(code, **options), *outlets)

    try:
        return _supervise(policy, work, interruption)
    finally:
        for outlet in outlets:
            outlet.finish()


async def _show(stream: AsyncGenerator[Event, None], stdout: Outlet, stderr: Outlet) -> RunResult:
    # Closed here and now, whatever happens: leaving the stream is what ends the run.
    async with aclosing(stream) as events:
        async for event in events:
            match event:
                case Stdout(data):
                    stdout.write(data)
                case Stderr(data):
                    stderr.write(data)
                case Finished(result):
                    return result
                case Display():
                    pass
    raise AssertionError("a stream ends with Finished")


def _tell(line: str) -> None:
    """Why it takes so long, for somebody who is waiting."""
    if os.isatty(2):
        say(line)


def _supervise(policy: Policy, work: Work, interruption: Interruption) -> RunResult:
    async def main() -> RunResult:
        with anyio.CancelScope() as scope, interruption.cancelling(scope):
            async with Sandbox(policy, progress=_tell) as box:
                return await work(box)
        raise StoppedError(interruption.signal or 0)

    try:
        return anyio.run(main)
    except FumehoodError:
        # Ctrl-C reaches a cell that is just being started too; its complaint is not the news.
        if interruption.signal:
            raise StoppedError(interruption.signal) from None
        raise
