"""A limit on the socket buffers of a container, which cgroups of version 1 count apart from its memory.

An engine takes such a limit (`KernelMemoryTCP`) and answers with it, but runc does not set it. A process of root on the
engine's machine can: in the container's own cgroup, before there is any program in it.
"""

from __future__ import annotations

import os
from pathlib import Path

from fumehood.backends.docker.engine import EngineFacts

_LIMIT = "memory.kmem.tcp.limit_in_bytes"
_PROC = Path("/proc")


def are_counted_as_memory(facts: EngineFacts) -> bool:
    return facts.cgroup_version != "1"


def can_be_limited(facts: EngineFacts) -> bool:
    """Whether to expect it; `limit` knows."""
    return facts.is_local and os.geteuid() == 0


def limit(container: str, process: int, most_bytes: int, proc: Path = _PROC) -> bool:
    """Whether they are limited now. `process` is the container's first, as the engine numbers it."""
    try:
        folder = _memory_cgroup(container, process, proc)
        if folder is None or not (folder / _LIMIT).exists():
            return False
        (folder / _LIMIT).write_text(str(most_bytes))
        return int((folder / _LIMIT).read_text()) <= most_bytes
    except OSError:
        return False


def _memory_cgroup(container: str, process: int, proc: Path) -> Path | None:
    """None where the number means another process than the engine's: that one's cgroup does not name the container."""
    groups = (line.split(":", 2) for line in (proc / str(process) / "cgroup").read_text().splitlines())
    path = next((path for _, controllers, path in groups if "memory" in controllers.split(",")), "")
    if container not in path:
        return None
    for line in (proc / "self" / "mountinfo").read_text().splitlines():
        fields, _, tail = line.partition(" - ")
        kind, _, options = tail.split()[:3]
        if kind == "cgroup" and "memory" in options.split(","):
            root, place = fields.split()[3:5]
            return Path(place) / path.removeprefix(root).lstrip("/")
    return None
