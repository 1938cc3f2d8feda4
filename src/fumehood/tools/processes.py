"""Tools for programs that go on between calls: servers, watchers, shells and other programs that talk.

A process is a background run of the sandbox: the policy's limits, command rules and audit apply as to any other run, it
ends at the latest when `resources.timeout` is over, and nothing of it outlives the sandbox.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Literal
from weakref import WeakKeyDictionary

import anyio
from pydantic import Field

from fumehood.errors import UsageError
from fumehood.results import RunResult
from fumehood.tools.result import LongText, TextPart, ToolOutput, describe_run
from fumehood.tools.runs import SHELL
from fumehood.tools.sandbox_description import about_shell
from fumehood.tools.tool import MOST_WAIT_SECONDS, Arguments, Risk, Tool, ToolContext

if TYPE_CHECKING:
    from fumehood.sandbox.interface import AnyBackgroundRun, AnySandbox

MOST_PROCESSES = 8
TERMINAL = (120, 40)
"""Columns and rows of a terminal that a model gets."""
# What follows the first output so soon belongs to it.
_BURST_SECONDS = 0.1

ProcessNumber = Annotated[int, Field(ge=1, description="The number that start_process gave.")]
Wait = Annotated[
    float, Field(ge=0, le=MOST_WAIT_SECONDS, description="Seconds to wait for output; returns sooner if there is any.")
]


class StartProcessArguments(Arguments):
    command: Annotated[str, Field(min_length=1, description="A command line for bash.")]
    cwd: Annotated[str, Field(description="The folder to run it in; the workspace by default.")] = ""
    terminal: Annotated[
        bool, Field(description="Give it a terminal, for programs that behave differently with one.")
    ] = False
    wait: Wait = 1


class ReadProcessArguments(Arguments):
    process: ProcessNumber
    wait: Wait = 5


class WriteProcessArguments(Arguments):
    process: ProcessNumber
    text: Annotated[str, Field(description="Written as it is: a line ends with a line feed.")]
    end_input: Annotated[bool, Field(description="Close its standard input after the text.")] = False
    wait: Wait = 1


class StopProcessArguments(Arguments):
    process: ProcessNumber
    signal: Annotated[
        Literal["KILL", "TERM", "INT", "HUP", "USR1", "USR2"],
        Field(description="KILL ends it and all that it started; the others are sent to it and may be handled."),
    ] = "KILL"
    wait: Wait = 1


@dataclass(slots=True)
class _Started:
    """The processes of one sandbox, by number, until a model has seen that they ended."""

    runs: dict[int, AnyBackgroundRun] = field(default_factory=dict[int, "AnyBackgroundRun"])
    last: int = 0
    starting: int = 0
    """How many are on their way: calls of one answer of a model are carried out at the same time."""

    @property
    def are_all_taken(self) -> bool:
        return len(self.runs) + self.starting >= MOST_PROCESSES


class _Processes:
    """A sandbox that is gone takes its processes with it: this object keeps no sandbox alive."""

    def __init__(self) -> None:
        self._started: WeakKeyDictionary[AnySandbox, _Started] = WeakKeyDictionary()

    async def start(self, context: ToolContext, given: StartProcessArguments) -> ToolOutput:
        started = self._started.setdefault(context.sandbox, _Started())
        await _forget_ended(started)
        if started.are_all_taken:
            raise UsageError(f"{MOST_PROCESSES} processes are running, which is the most; stop_process one of them")
        terminal = TERMINAL if given.terminal else None
        started.starting += 1
        try:
            run = await context.sandbox.start(given.command, language="bash", cwd=given.cwd, terminal=terminal)
        finally:
            started.starting -= 1
        started.last += 1
        started.runs[started.last] = run
        return await self._show(context, started.last, run, given.wait)

    async def read(self, context: ToolContext, given: ReadProcessArguments) -> ToolOutput:
        return await self._show(context, given.process, self._find(context, given.process), given.wait)

    async def write(self, context: ToolContext, given: WriteProcessArguments) -> ToolOutput:
        run = self._find(context, given.process)
        with anyio.move_on_after(max(given.wait, 1)) as scope:
            await run.write(given.text)
        if scope.cancelled_caught:
            return ToolOutput(f"Process {given.process} does not read its input; a part of the text may have arrived.")
        if given.end_input:
            await run.close_stdin()
        return await self._show(context, given.process, run, given.wait)

    async def stop(self, context: ToolContext, given: StopProcessArguments) -> ToolOutput:
        run = self._find(context, given.process)
        if given.signal == "KILL":
            await run.kill()
        else:
            await run.send_signal(signal.Signals[f"SIG{given.signal}"])
        return await self._show(context, given.process, run, given.wait)

    async def _show(self, context: ToolContext, number: int, run: AnyBackgroundRun, wait: float) -> ToolOutput:
        """What is new of it, and whether it goes on. One that has ended is forgotten with that."""
        output = await run.read(wait=wait)
        if wait and (output.stdout or output.stderr):
            # Not by waiting for its end: to cut that short could leave the end half recorded.
            await anyio.sleep(_BURST_SECONDS)
        rest, result = await run.read(), await run.poll()
        texts = output.stdout + rest.stdout, output.stderr + rest.stderr
        if result is None:
            return ToolOutput((f"Process {number} is running.", *_printed(*texts)))
        self._started[context.sandbox].runs.pop(number, None)  # another call may have seen the end, too
        return ToolOutput((f"Process {number} has ended. {_end(result)}", *_printed(*texts)), run=result)

    def _find(self, context: ToolContext, number: int) -> AnyBackgroundRun:
        runs = self._started.get(context.sandbox, _Started()).runs
        if number in runs:
            return runs[number]
        names = ", ".join(map(str, runs)) or "none"
        raise UsageError(f"there is no process {number}; start it with start_process first. There are: {names}")


async def _forget_ended(started: _Started) -> None:
    """When the numbers are all taken, those that ended unseen make room."""
    if not started.are_all_taken:
        return
    for number, run in [*started.runs.items()]:
        if await run.poll() is not None:
            started.runs.pop(number, None)


def _end(result: RunResult) -> str:
    """How it ended, without its output, of which the model has seen a part before."""
    words = describe_run(result).parts[0]
    assert isinstance(words, str)
    return words


def _printed(stdout: bytes, stderr: bytes) -> list[TextPart]:
    parts: list[TextPart] = []
    for name, data in (("stdout", stdout), ("stderr", stderr)):
        if data:
            parts += [f"\n{name}:\n", LongText(data.decode("utf-8", "replace"), trimmed=True)]
    return parts or ["\nThere is no new output."]


def process_tools() -> tuple[Tool, ...]:
    """Tools to start, read, write to and stop processes in the background, for one agent or one connection."""
    processes = _Processes()
    return (
        Tool(
            "start_process",
            "Start a command line with bash in the background: a server, a watcher, a program to talk to. It goes on "
            "between calls. Gives its number and what it printed first.",
            StartProcessArguments,
            SHELL.risk,
            processes.start,
            about=about_shell,
            is_recorded_first=True,
            counts_as=SHELL.name,
        ),
        Tool(
            "read_process",
            "See what a process in the background has printed since the last look, and whether it has ended.",
            ReadProcessArguments,
            Risk.LOW,
            processes.read,
        ),
        Tool(
            "write_process",
            "Write to the standard input, or the terminal, of a process in the background, and see what it answers.",
            WriteProcessArguments,
            Risk.HIGH,
            processes.write,
            counts_as=SHELL.name,
        ),
        Tool(
            "stop_process",
            "End a process in the background with everything that it started, or send it a signal.",
            StopProcessArguments,
            Risk.MEDIUM,
            processes.stop,
        ),
    )
