"""What the audit log costs: a run with it and without, records a second, and a log of many records."""

from __future__ import annotations

import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import anyio

from fumehood.audit import AuditLog, Query, Trail
from fumehood.audit.inspection import check
from fumehood.audit.log import current_user
from fumehood.audit.records import Entry, timestamp
from fumehood.cli.bench.measurement import Row, in_turns
from fumehood.cli.bench.runs import PROGRAM
from fumehood.sandbox.async_sandbox import AsyncSandbox

_BATCH = 1000
_AT_ONCE = 16
_MIB = 1024 * 1024


async def measure(rounds: int, many: int) -> AsyncIterator[Row]:
    # Not below /tmp, which may be in memory: a log is not.
    with tempfile.TemporaryDirectory(prefix="hood-bench-", dir="/var/tmp") as folder:
        # Many: what is looked for is smaller than the differences between runs.
        async for row in _runs(Path(folder, "runs"), rounds * 12):
            yield row
        yield Row("audit: records per second, one a commit", _per_second(Path(folder, "one"), 1), "/s")
        yield Row(f"audit: records per second, {_BATCH} a commit", _per_second(Path(folder, "many"), _BATCH), "/s")
        together, alone = await _synced_per_second(Path(folder, "synced"), rounds)
        yield Row(f"audit: synced records per second, {_AT_ONCE} writers / one", together, "/s", against=alone)
        if many:
            for row in _large(Path(folder, "large"), many):
                yield row


async def _runs(folder: Path, rounds: int) -> AsyncIterator[Row]:
    """The same cell for all: they differ in nothing but the log."""
    log = AuditLog.at(folder)
    async with AsyncSandbox(audit=False) as without:
        for name, trail, budget in (("", Trail(log), "<= 1.1x"), (", synced", Trail(log, synced=True), "")):
            async with AsyncSandbox(audit=trail) as box:
                # Two at a time: a third one would find the cell more rested than the others do.
                jobs = (lambda box=box: box.run(PROGRAM), lambda: without.run(PROGRAM))
                ours, baseline = await in_turns(rounds, *jobs, is_shuffled=True)
            yield Row(f"fresh run with audit{name} / without", ours, against=baseline, budget=budget)


async def _synced_per_second(folder: Path, rounds: int) -> list[float]:
    trail = Trail(AuditLog.at(folder), who=current_user(), synced=True)

    async def write(writers: int) -> None:
        async with anyio.create_task_group() as group:
            for number in range(writers):
                group.start_soon(trail.write, _entry(number))

    taken = await in_turns(rounds, lambda: write(_AT_ONCE), lambda: write(1))
    return [count / milliseconds * 1000 for count, milliseconds in zip((_AT_ONCE, 1), taken, strict=True)]


def _per_second(folder: Path, batch: int) -> float:
    log, count = AuditLog.at(folder), 2000 if batch == 1 else 20 * batch
    started = time.perf_counter()
    for first in range(0, count, batch):
        log.append([_entry(first + n) for n in range(batch)])
    return count / (time.perf_counter() - started)


def _large(folder: Path, count: int) -> list[Row]:
    log = AuditLog.at(folder)
    for first in range(0, count, _BATCH):
        log.append([_entry(first + n) for n in range(_BATCH)])
        log.checkpoint_if_due()
    size = sum(file.stat().st_size for file in folder.iterdir())
    started = time.perf_counter()
    report = check(folder, None)
    verified = time.perf_counter() - started
    if not report.ok:
        raise RuntimeError(f"the log does not verify: {report.problems}")
    name = f"audit, {count} records"
    return [
        Row(f"{name}: size", size / _MIB, "M"),
        Row(f"{name}: verify", verified, "s"),
        Row(f"{name}: find a run", _seconds(log, Query(run_id=_run(count // 2))) * 1000, "ms"),
        Row(f"{name}: search a text", _seconds(log, Query(text="no such thing")), "s"),
        Row(
            f"{name}: last of a status", _seconds(log, Query(status="error", newest_first=True, limit=100)) * 1000, "ms"
        ),
    ]


def _seconds(log: AuditLog, query: Query) -> float:
    started = time.perf_counter()
    for _ in log.find(query):
        pass
    return time.perf_counter() - started


def _entry(number: int) -> Entry:
    """As long as those of a run are, on the average."""
    data = {
        "status": "error" if number % 10 == 0 else "success",
        "cause": "exit",
        "exit_code": 0,
        "duration_us": 4000 + number % 1000,
        "cpu_us": 3000,
        "peak_memory_bytes": 1310720,
        "stdout": {"sha256": f"{number:064x}", "size": 2},
    }
    ids = {"run": _run(number), "sandbox": f"box_{number // 30:016x}"}
    return Entry(timestamp(time.time()), "run.finished", current_user(), None, ids, data)


def _run(number: int) -> str:
    """Three records for each run, with an id that says nothing of its order."""
    return f"run_{number // 3 * 0x9E3779B97F4A7C15 % 2**64:016x}"
