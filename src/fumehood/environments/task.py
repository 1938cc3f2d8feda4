"""One installation: what to run, which files it may see, which hosts it may reach.

The store knows what is to be installed, not how an untrusted program is confined. An `InstallRunner` does,
and is given to the store.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fumehood.environments.sources import Site


@dataclass(frozen=True, slots=True)
class InstallTask:
    argv: tuple[str, ...]
    variables: Mapping[str, str]
    readable: Mapping[str, Path]
    """Where the program sees it -> a file or folder of the host that it may read."""
    writable: Mapping[str, Path]
    sites: tuple[Site, ...]
    """The hosts that it may reach."""
    pages: tuple[str, ...] = ()
    """Pages at these sites whose links name further hosts that keep the files."""


@dataclass(frozen=True, slots=True)
class InstallReport:
    code: int
    said: str
    """Its standard error."""
    limit: str = ""
    """Which limit ended it, in a sentence."""
    refused: tuple[str, ...] = ()
    """Hosts that it tried to reach and that were denied."""


class InstallRunner(Protocol):
    """Runs a task where it sees and reaches nothing but what the task names. Blocks.

    Whatever `heartbeat` raises, several times a second, ends it; by then nothing of it is left running.
    """

    def __call__(
        self, task: InstallTask, on_line: Callable[[str], None], heartbeat: Callable[[], None]
    ) -> InstallReport: ...
