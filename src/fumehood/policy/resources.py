"""How much a run may use. Every limit has a value: nothing is unbounded."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fumehood.policy.quantities import KIB, MAX_SIZE, MIB, Duration, Size, bounded, format_size
from fumehood.policy.section import Section


class Resources(Section):
    """Seconds, bytes and counts; `cpu_time` is bounded by `timeout` and `cpus` when it is not given."""

    timeout: Duration = Field(default=30.0, description="How long a run may take by the clock.")
    cpu_time: Duration | None = Field(
        default=None,
        description="How much CPU time each process may use. Without it `timeout` and `cpus` are the bounds.",
    )
    memory: Annotated[Size, bounded(16 * MIB, MAX_SIZE, format_size)] = Field(
        default=512 * MIB, description="How much memory a run may use, files in /tmp and in the workspace included."
    )
    cpus: Annotated[float, bounded(0.01, 1024.0)] = Field(
        default=1.0, description="How many processors a run may keep busy; 0.5 is half of one."
    )
    processes: Annotated[int, bounded(1, 4_194_304)] = Field(
        default=64, description="How many processes and threads a run may have at a time."
    )
    disk: Annotated[Size, bounded(4 * KIB, MAX_SIZE, format_size)] = Field(
        default=256 * MIB,
        description="How much a run may write to /tmp, /dev/shm and /run together, and to the workspace.",
    )
    inodes: Annotated[int, bounded(16, 1_000_000_000)] = Field(
        default=65536, description="How many files and folders these may hold."
    )
    output: Size = Field(default=MIB, description="How much a run may write to its standard output and error together.")
    open_files: Annotated[int, bounded(16, 1_048_576)] = Field(
        default=256, description="How many files each process may have open."
    )
    artifacts: Annotated[int, bounded(1, 100_000)] = Field(
        default=1000, description="How many files a run may hand over."
    )
    artifacts_size: Size = Field(default=256 * MIB, description="How large these may be together.")
