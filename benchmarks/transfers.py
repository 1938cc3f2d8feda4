"""A large file in and out, against `cp` between the same places."""

from __future__ import annotations

import os
import resource
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path

from anyio import to_thread

from fumehood.cli.bench.measurement import Row
from fumehood.policy import Policy
from fumehood.sandbox.async_sandbox import AsyncSandbox

_MIB = 1024 * 1024
_FILE_MIB = 1024
_POLICY = {"filesystem": {"workspace": {"size": "2G"}, "outputs": ["**"]}}


async def measure() -> AsyncIterator[Row]:
    with tempfile.TemporaryDirectory(prefix="hood-bench-") as disk, _memory_folder() as memory:
        source, copy = Path(disk, "source"), Path(memory, "copy")
        await to_thread.run_sync(_fill, source)
        async with AsyncSandbox(Policy(**_POLICY)) as box:
            await box.files.write("warm", b"")
            peak = _peak_mib()
            baseline = await to_thread.run_sync(_copy, source, copy)
            yield Row(f"upload {_FILE_MIB} MiB / cp", await _speed(box.files.upload(source, "big")), "M/s", baseline)
            baseline = await to_thread.run_sync(_copy, copy, Path(disk, "copied"))
            target = Path(disk, "target")
            yield Row(
                f"download {_FILE_MIB} MiB / cp", await _speed(box.files.download("big", target)), "M/s", baseline
            )
            yield Row("memory that this took more on the host", _peak_mib() - peak, "M")


def _memory_folder() -> tempfile.TemporaryDirectory[str]:
    """Where a sandbox's files are too: in memory."""
    return tempfile.TemporaryDirectory(prefix="hood-bench-", dir="/dev/shm")


def _fill(path: Path) -> None:
    chunk = os.urandom(_MIB)
    with path.open("wb") as stream:
        for _ in range(_FILE_MIB):
            stream.write(chunk)


def _copy(source: Path, target: Path) -> float:
    started = time.perf_counter()
    subprocess.run(["cp", source, target], check=True)
    return _FILE_MIB / (time.perf_counter() - started)


async def _speed(work: Awaitable[object]) -> float:
    started = time.perf_counter()
    await work
    return _FILE_MIB / (time.perf_counter() - started)


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
