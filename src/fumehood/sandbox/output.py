"""Turns a run's output from a backend into what a caller gets: events one by one, or a record of them all."""

from __future__ import annotations

from fumehood.backends.interface import Execution, Output
from fumehood.events import Stderr, Stdout
from fumehood.results import Display, RunOutput

LAST_WORDS_BYTES = 4096


def as_event(output: Output | Display) -> Stdout | Stderr | Display:
    if isinstance(output, Display):
        return output
    return Stdout(output.data) if output.stream == 1 else Stderr(output.data)


class LastWords:
    """The end of standard error, of output that is passed on and not kept: what a hint is made of."""

    def __init__(self) -> None:
        self.data = b""

    def add(self, event: Stdout | Stderr | Display) -> None:
        if isinstance(event, Stderr):
            self.data = (self.data + event.data)[-LAST_WORDS_BYTES:]


async def record(execution: Execution) -> RunOutput:
    """Everything, to the end."""
    streams: dict[int, list[bytes]] = {1: [], 2: []}
    displays: list[Display] = []
    async for output in execution.output():
        if isinstance(output, Display):
            displays.append(output)
        else:
            streams[output.stream].append(output.data)
    return RunOutput(execution.outcome(), b"".join(streams[1]), b"".join(streams[2]), tuple(displays))
