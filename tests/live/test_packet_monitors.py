"""How many runs of a cell are watched at a time: each costs a filter that the kernel compiles and frees."""

from __future__ import annotations

from contextlib import aclosing

import pytest

from fumehood import AsyncSandbox, Policy, Stdout
from fumehood.guest.cell.supervision import MOST_PACKET_MONITORS

POLICY = Policy(network={"allow": [{"host": "a.example", "ports": [443]}]}, resources={"memory": "64M"})
# UDP has no listener: the kernel refuses it, and a run that is watched is told.
SENDS = "import socket\nline = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nline.connect(('203.0.113.10', 53))\n"
SENDS += "print('up', flush=True)\ninput()\nline.send(b'x')\n"

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]


async def test_only_so_many_runs_of_a_cell_are_watched_and_the_others_run_all_the_same() -> None:
    async with AsyncSandbox(POLICY) as box:
        runs = [await box.start(SENDS) for _ in range(MOST_PACKET_MONITORS + 8)]
        for run in runs:
            async with aclosing(run.stream()) as events:
                assert isinstance(await anext(events), Stdout)
        for run in runs:
            await run.write("go\n")
        results = [await run.wait() for run in runs]
    watched = [result for result in results if result.denials]
    assert 1 <= len(watched) <= MOST_PACKET_MONITORS
    # Places are given back; runs that were on standby meanwhile have none.
    async with AsyncSandbox(POLICY) as box:
        for _ in range(6):
            run = await box.start(SENDS)
            await run.write("go\n")
            last = await run.wait()
    assert last.denials
