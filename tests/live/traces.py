"""What sandboxes leave on a machine, counted: processes, cgroups, mounts, descriptors, threads, memory."""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import engine

from fumehood.audit import AuditLog
from fumehood.backends.native.cell_spec import STANDBYS

CGROUP_ROOT = Path("/sys/fs/cgroup")
_ENGINES = ("/docker", "/containerd", "/overlay2/", "/netns/", "-engine/")


def wait_until(condition: Callable[[], object], seconds: float, what: str) -> None:
    """Poll, for what no event announces."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.01)


def containers(place: Path, label: str) -> list[str]:
    """That the engine at this place has, ended ones too."""
    done = engine.docker(place, "ps", "--all", "--quiet", "--filter", f"label={label}")
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def wait_for_removal(place: Path, policy_digest: str, seconds: float = 30) -> None:
    """The engine removes containers in its own time, behind those who go on."""
    wait_until(lambda: not containers(place, f"fumehood.policy={policy_digest}"), seconds, "they are removed")


def has_process(mark: str) -> bool:
    """Whether any process of the machine, in a container or not, has this on its command line."""
    return bool(processes_with(mark))


def processes_with(mark: str) -> set[int]:
    """Every process of the machine, in a container or not, that has this on its command line; words end with NUL."""
    found: set[int] = set()
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark.encode() in entry.read_bytes():
                found.add(int(entry.parent.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def parents() -> dict[int, int]:
    """Living processes: pid -> parent."""
    found: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                state, parent = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()[:2]
            except (FileNotFoundError, ProcessLookupError):
                continue
            if state not in "ZX":
                found[int(entry)] = int(parent)
    return found


def descendants(process: int) -> set[int]:
    """Living processes below this one, without it."""
    known = parents()
    found: set[int] = set()
    level = {process}
    while level:
        level = {pid for pid, parent in known.items() if parent in level}
        found |= level
    return found


def is_alive(process: int) -> bool:
    return process in parents()


def cells_of(process: int) -> list[int]:
    """The outside of a host's cells: processes that it started directly, each of which has started the cell itself.

    An interpreter that waits for the next policy has started nothing yet.
    """
    started = parents()
    return [pid for pid, parent in started.items() if parent == process and pid in started.values()]


def children_of(process: int) -> list[int]:
    return [pid for pid, parent in parents().items() if parent == process]


def cgroups_of(process: int) -> list[Path]:
    """Cgroups that carry the process's name, wherever they are mounted."""
    return [group for group in cgroups_of_cells() if group.name.startswith(f"fumehood-{process}-")]


def cgroups_of_cells() -> list[Path]:
    """All that there are. A process may have the number of one that was killed long ago, elsewhere."""
    return [Path(folder) / name for folder, names, _ in os.walk(CGROUP_ROOT) for name in names
            if name.startswith("fumehood-")]  # fmt: skip


def run_cgroups_of(process: int) -> list[Path]:
    return [run for cell in cgroups_of(process) for run in cell.glob("run-*")]


def mounts(process: int | str = "self") -> list[str]:
    """Without those of container engines, which come and go as others on this machine use them."""
    lines = Path(f"/proc/{process}/mountinfo").read_text().splitlines()
    return [line for line in lines if not any(word in line for word in _ENGINES)]


def private_kib(process: int) -> int:
    """Memory that this process alone has written to; what it only reads is shared with whoever comes and goes."""
    rollup = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in rollup if line.startswith("Private_Dirty:"))


def _all_stand_by(sandboxes: int) -> bool:
    """A cell is two processes, and so is each run. An engine has helpers too, but these have no cgroups of ours."""
    me = os.getpid()
    runs = {(run.parent.name, run.name) for run in run_cgroups_of(me)}
    has_runs = not cgroups_of(me) or len(runs) >= sandboxes * STANDBYS
    return has_runs and len(descendants(me)) >= sandboxes * (2 + 2 * STANDBYS)


def _threads() -> list[threading.Thread]:
    """Without those that anyio keeps for what blocks: up to forty, however many were ever needed at once."""
    return [thread for thread in threading.enumerate() if thread.name != "AnyIO worker thread"]


@dataclass(frozen=True)
class Footprint:
    descriptors: int
    threads: int
    processes: int
    cgroups: int
    mounts: int

    @classmethod
    def of_this_process(cls) -> Footprint:
        me = os.getpid()
        return cls(
            descriptors=len(os.listdir("/proc/self/fd")),
            threads=len(_threads()),
            processes=len(descendants(me)),
            cgroups=len(run_cgroups_of(me)),
            mounts=len(mounts()),
        )

    @classmethod
    def at_rest(cls, sandboxes: int = 1) -> Footprint:
        """Once every cell has the runs on standby that it wants, and the log what its first checkpoint opens."""
        log = AuditLog.default()
        assert log is not None
        log.checkpoint()
        wait_until(lambda: _all_stand_by(sandboxes), 10.0, "all runs stand by")
        return cls.of_this_process()

    def wait_until_it_is_so_again(self, seconds: float) -> None:
        """Or less; what there is more of is named."""
        deadline = time.monotonic() + seconds
        while more := self._exceeded():
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {seconds} s as before, {self}: {more}")
            time.sleep(0.01)

    def _exceeded(self) -> dict[str, int]:
        now = dataclasses.asdict(Footprint.of_this_process())
        return {name: count for name, count in now.items() if count > getattr(self, name)}
