"""What a stream yields: output as it appears, and at last the result. A `Display` comes from sessions only."""

from __future__ import annotations

from fumehood.frozen import frozen
from fumehood.results import Display, RunResult


@frozen
class Stdout:
    data: bytes


@frozen
class Stderr:
    data: bytes


@frozen
class Finished:
    """The last event. The output in this result is empty: it was streamed."""

    result: RunResult


Event = Stdout | Stderr | Display | Finished
