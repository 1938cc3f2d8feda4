"""What a stream yields: output as it appears, and at last the result. A `Display` comes from sessions only."""

from __future__ import annotations

from dataclasses import dataclass

from fumehood.results import Display, RunResult


@dataclass(frozen=True, slots=True)
class Stdout:
    data: bytes


@dataclass(frozen=True, slots=True)
class Stderr:
    data: bytes


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event. The output in this result is empty: it was streamed."""

    result: RunResult


Event = Stdout | Stderr | Display | Finished
