"""Which process is the home of which partition of a type's agents: rendezvous hashing; pure.

A partition keeps its home while that process lives, because its agents are there. One that has no agent is handed over
to the process that rendezvous hashing names, so that processes which join later get their share.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence

from fumehood.runtime.nats.subjects import PARTITIONS

Homes = tuple[str | None, ...]
"""The process that is home, by partition."""

NO_HOMES: Homes = (None,) * PARTITIONS


def preferred(type: str, partition: int, processes: Collection[str]) -> str | None:
    """The process that should be the partition's home, if one of these is to be."""
    return max(processes, key=lambda process: _score(type, partition, process), default=None)


def assigned(type: str, homes: Sequence[str | None], processes: Collection[str]) -> Homes:
    """Homes after processes have joined or left: only partitions without a living home change."""
    return tuple(
        home if home in processes else preferred(type, partition, processes) for partition, home in enumerate(homes)
    )


def handed_over(
    type: str, homes: Sequence[str | None], processes: Collection[str], own: str, is_empty: Callable[[int], bool]
) -> Homes:
    """Homes after a process has given away those of its partitions that are empty and should be another's."""
    return tuple(
        (preferred(type, partition, processes) or home) if home == own and is_empty(partition) else home
        for partition, home in enumerate(homes)
    )


def _score(type: str, partition: int, process: str) -> bytes:
    return hashlib.sha256(f"{type} {partition} {process}".encode()).digest()
