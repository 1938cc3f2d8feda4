"""Programs that use Fumehood as an application would, started as processes of their own so that they can be killed."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from live.loaded_hood import start_python

TWENTY_RUNS = """
import anyio, fumehood
async def one(box, n):
    async for event in box.stream("import subprocess, threading\\nsubprocess.Popen(['sleep', '1000'])\\n"
                                  "import os; os.write(1, b'up')\\nthreading.Event().wait()"):
        print(n, flush=True)
async def main():
    async with anyio.create_task_group() as tasks:
        for policy in (fumehood.Policy(), fumehood.Policy(resources={"memory": "200M"})):
            box = await fumehood.AsyncSandbox(policy).__aenter__()
            for n in range(10):
                tasks.start_soon(one, box, n)
anyio.run(main)
"""

FORKING = """
import os, signal, sys, fumehood
box = fumehood.Sandbox().__enter__()
stream = box.stream("import threading\\nprint('up', flush=True)\\nthreading.Event().wait()")
next(stream)
child = os.fork()
if child == 0:
    signal.pause()
print(child, flush=True)
signal.pause()
"""

ONE_RUN = "import fumehood; print(fumehood.run('print(42)').stdout, end='')"


@contextmanager
def open_host(program: str) -> Iterator[subprocess.Popen[str]]:
    """The host's process; killed at the end if it still lives."""
    command = ("-W", "ignore", "-c", program)
    with start_python(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as host:
        try:
            yield host
        finally:
            host.kill()


def run_host(program: str, *, seconds: float = 60) -> str:
    """What a host prints; it must end well and in time. Children that it forked are ended with it."""
    command = ("-W", "ignore", "-c", program)
    with start_python(*command, stdout=subprocess.PIPE, text=True, start_new_session=True) as host:
        try:
            output, _ = host.communicate(timeout=seconds)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(host.pid, signal.SIGKILL)
    assert host.returncode == 0
    return output
