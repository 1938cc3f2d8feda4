"""Runs in the background that requests have started, by ids that say whose sandbox they are in."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from weakref import WeakKeyDictionary

from fumehood.errors import FumehoodError, UsageError
from fumehood.remote.handlers.parts import ServedRun
from fumehood.server.api.problems import NotFoundError
from fumehood.server.api.sandboxes import in_use
from fumehood.server.sandboxes.open_sandbox import OpenSandbox
from fumehood.server.sandboxes.registry import SandboxRegistry

_MOST_RUNS = 64


class BackgroundRuns:
    """They live as long as their sandbox, also after their end: the result can be asked for until then.

    The id of a run is that of its sandbox and a number. So a run of a sandbox that has ended answers as that does,
    and one of another tenant's as one that never was.
    """

    def __init__(self) -> None:
        self._runs: WeakKeyDictionary[OpenSandbox, dict[int, ServedRun]] = WeakKeyDictionary()
        self._watches: set[asyncio.Task[None]] = set()

    def add(self, opened: OpenSandbox, run: ServedRun) -> str:
        runs = self._runs.setdefault(opened, {})
        number = max(runs, default=0) + 1
        runs[number] = run
        watch = asyncio.ensure_future(_watch(opened, run))
        self._watches.add(watch)
        watch.add_done_callback(self._watches.discard)
        return f"{opened.id}.{number}"

    def check_room(self, opened: OpenSandbox) -> None:
        """Makes room by forgetting the oldest that have ended."""
        runs = self._runs.setdefault(opened, {})
        for number in [number for number, run in runs.items() if run.is_concluded]:
            if len(runs) >= _MOST_RUNS:
                del runs[number]
        if len(runs) >= _MOST_RUNS:
            raise UsageError(f"the sandbox has {_MOST_RUNS} runs in the background; end some of them")

    async def find(self, registry: SandboxRegistry, tenant: str, identifier: str) -> tuple[OpenSandbox, ServedRun]:
        sandbox, _, number = identifier.partition(".")
        opened = await registry.find(tenant, sandbox)
        run = self._runs.get(opened, {}).get(int(number) if number.isascii() and number.isdigit() else 0)
        if run is None:
            raise NotFoundError("run")
        return opened, run


async def _watch(opened: OpenSandbox, run: ServedRun) -> None:
    """Until it ends the sandbox is not idle, and its end is recorded and counted when it comes.

    A sandbox that is closed meanwhile ends its runs, and records that itself.
    """
    with suppress(FumehoodError), in_use(opened):
        await run.wait()
