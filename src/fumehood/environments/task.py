"""An installation as whoever carries it out has to know it: what to run, what it may see, where it may go.

The store knows what is to be installed, not how an untrusted program is held. A `Runner` does, and comes from above.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fumehood.environments.sources import Site


@dataclass(frozen=True, slots=True)
class Task:
    argv: tuple[str, ...]
    variables: Mapping[str, str]
    readable: Mapping[str, Path]
    """Where the program sees it -> a file or folder of the host that it may read."""
    writable: Mapping[str, Path]
    sites: tuple[Site, ...]
    """Where it may go."""
    pages: tuple[str, ...] = ()
    """Addresses at these sites whose links tell where else the files are kept."""


@dataclass(frozen=True, slots=True)
class Report:
    code: int
    said: str
    """On its standard error."""
    limit: str = ""
    """Which limit ended it, in a sentence."""
    refused: tuple[str, ...] = ()
    """Where it went and was turned back."""


class Runner(Protocol):
    """Runs a task where it sees and reaches nothing but what the task names. Blocks.

    Whatever `heartbeat` raises, several times a second, ends it; by then nothing of it is left running.
    """

    def __call__(self, task: Task, on_line: Callable[[str], None], heartbeat: Callable[[], None]) -> Report: ...
