"""Machines: a sandbox with a kernel of its own, from the pool and restored, against `docker run`; memory of copies."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from benchmarks import rivals
from fumehood.backends.microvm import MicroVMBackend
from fumehood.backends.microvm.confinement import Confinement
from fumehood.backends.microvm.image import MachineImageMissingError, read_image
from fumehood.backends.microvm.machine import describe, find_emulator
from fumehood.backends.microvm.template import boot
from fumehood.backends.native.host_facts import detect
from fumehood.cli.bench.measurement import Row, command, in_turns
from fumehood.errors import FumehoodError
from fumehood.policy import Policy
from fumehood.sandbox.async_sandbox import AsyncSandbox

_RUNTIMES = {"docker run": (), "docker run with runsc": ("--runtime", "runsc")}
_COPIES = 20
_MIB = 1024 * 1024
_TESTS = Path(__file__).parents[1] / "tests"
_SMALL = {"resources": {"memory": "64M"}}


async def measure(rounds: int) -> AsyncIterator[Row]:
    few = max(3, rounds // 6)
    policy = Policy(backend="microvm")
    try:
        await anyio.to_thread.run_sync(_provide_image)
        await _use_once(policy)
    except (FumehoodError, _NoImageError) as error:
        yield Row("microvm: fresh, from the pool / docker run", missing=str(error).splitlines()[0][:60])
        return
    for name, options in _RUNTIMES.items():
        rival = rivals.docker(*options)
        if rival is None:
            yield Row(f"microvm: fresh, from the pool / {name}", missing="no Docker engine with an image answers")
            continue
        ours, baseline, _ = await in_turns(few, partial(_use_once, policy), command(rival), partial(anyio.sleep, 5))
        yield Row(f"microvm: fresh, from the pool / {name}", ours, against=baseline, budget="<= 1.0x")
        restored, baseline = await in_turns(few, _Restored().use, command(rival))
        yield Row(f"microvm: fresh, restored / {name}", restored, against=baseline)
    async with AsyncSandbox(policy) as box:
        again, _ = await in_turns(few, lambda: box.run(rivals.PROGRAM), partial(anyio.sleep, 0))
        yield Row("microvm: run in an open sandbox", again)
    first, _ = await in_turns(few, _first_of_a_process, partial(anyio.sleep, 0))
    yield Row("microvm: first sandbox of a process / the boot that it is spared", first, against=await _boot(policy))
    yield await _memory()


class _NoImageError(Exception):
    """Why the tests' image cannot be made here."""


def _provide_image() -> None:
    """The user's, or that of the tests: which is made, in a minute or two, unless it is there."""
    try:
        read_image(None)
    except MachineImageMissingError:
        made = subprocess.run([sys.executable, _TESTS / "machines.py"], check=False, capture_output=True, text=True)
        if made.returncode != 0:
            raise _NoImageError(made.stderr.strip().splitlines()[-1]) from None
        os.environ["FUMEHOOD_MACHINES"] = made.stdout.strip()


class _Restored:
    """A policy that was never used is in no pool; its template is the one of all that have as much memory."""

    def __init__(self) -> None:
        self._inodes = 50_000 + os.getpid() % 10_000

    async def use(self) -> None:
        self._inodes += 1
        await _use_once(Policy(backend="microvm", resources={"inodes": self._inodes}))


async def _first_of_a_process() -> None:
    """Nothing is in memory: neither the template nor a sandbox for QEMU."""
    backend = MicroVMBackend()
    try:
        async with backend.open(Policy(backend="microvm"), None):
            pass
    finally:
        await anyio.to_thread.run_sync(backend.close)


async def _boot(policy: Policy) -> float:
    """Milliseconds of a machine's boot, to the moment at which it is kept; once."""
    confinement = Confinement(detect())
    try:
        started = time.perf_counter()
        template = await boot(confinement, read_image(None), describe(find_emulator(), policy.resources.memory))
        taken = (time.perf_counter() - started) * 1000
        template.close()
        return taken
    finally:
        confinement.close()


async def _use_once(policy: Policy) -> None:
    async with AsyncSandbox(policy) as box:
        result = await box.run(rivals.PROGRAM)
        if not result.ok:
            raise RuntimeError(f"the sandboxed program failed: {result.stderr} {result.detail}")


async def _memory() -> Row:
    """What so many copies hold that is theirs alone, after a run in each."""
    policy = Policy(backend="microvm", **_SMALL)
    async with AsyncExitStack() as stack:
        for _ in range(_COPIES):
            box = await stack.enter_async_context(AsyncSandbox(policy))
            await box.run(rivals.PROGRAM)
        private = sum(map(_private_bytes, _emulators()))
    return Row(f"microvm: memory of {_COPIES} copies, each with a run", private / _MIB, unit="MiB")


def _emulators() -> list[int]:
    found: list[int] = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if "qemu-system" in os.readlink(f"/proc/{name}/exe"):
                found.append(int(name))
        except OSError:
            continue
    return found


def _private_bytes(process: int) -> int:
    lines = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="ascii").splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_"))
