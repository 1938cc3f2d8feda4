"""How much a run may use. Every limit has a value: nothing is unbounded."""

from __future__ import annotations

from typing import Annotated

from fumehood.policy.quantities import KIB, MAX_SIZE, MIB, Duration, Size, bounded, format_size
from fumehood.policy.section import Section


class Resources(Section):
    """Seconds, bytes and counts; `cpu_time` is bounded by `timeout` and `cpus` when it is not given."""

    timeout: Duration = 30.0
    cpu_time: Duration | None = None
    memory: Annotated[Size, bounded(16 * MIB, MAX_SIZE, format_size)] = 512 * MIB
    cpus: Annotated[float, bounded(0.01, 1024.0)] = 1.0
    processes: Annotated[int, bounded(1, 4_194_304)] = 64
    disk: Annotated[Size, bounded(4 * KIB, MAX_SIZE, format_size)] = 256 * MIB
    inodes: Annotated[int, bounded(16, 1_000_000_000)] = 65536
    output: Size = MIB
    open_files: Annotated[int, bounded(16, 1_048_576)] = 256
    artifacts: Annotated[int, bounded(1, 100_000)] = 1000
    artifacts_size: Size = 256 * MIB
