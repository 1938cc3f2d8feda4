"""A run's cgroups over a made-up tree: folders in which plain files stand for the kernel's control files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fumehood.guest.contract.cell_spec import CellLimits, HierarchySpec
from fumehood.guest.isolation.cgroup import RunCgroups

LIMITS: CellLimits = {
    "memory_bytes": 64 * 1024 * 1024,
    "processes": 7,
    "cpus": 0.5,
    "disk_bytes": 1,
    "workspace_bytes": 1,
    "inodes": 1,
    "open_files": 1,
    "cpu_seconds": None,
    "address_space_bytes": None,
    "affinity": None,
}
FILES = {
    1: [
        "memory.limit_in_bytes",
        "memory.memsw.limit_in_bytes",
        "memory.max_usage_in_bytes",
        "memory.oom_control",
        "pids.max",
        "pids.events",
        "cpu.cfs_period_us",
        "cpu.cfs_quota_us",
        "tasks",
    ],
    2: [
        "memory.max",
        "memory.swap.max",
        "memory.oom.group",
        "memory.peak",
        "memory.events",
        "pids.max",
        "pids.events",
        "cpu.max",
        "cgroup.procs",
    ],
}
SETTINGS = {
    1: {
        "memory.limit_in_bytes": "67108864",
        "memory.memsw.limit_in_bytes": "67108864",
        "pids.max": "7",
        "cpu.cfs_period_us": "100000",
        "cpu.cfs_quota_us": "50000",
    },
    2: {
        "memory.max": "67108864",
        "memory.swap.max": "0",
        "memory.oom.group": "1",
        "pids.max": "7",
        "cpu.max": "50000 100000",
    },
}
COUNTERS = {
    1: {
        "memory.max_usage_in_bytes": "5000\n",
        "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
        "pids.events": "max 3\n",
    },
    2: {
        "memory.peak": "5000\n",
        "memory.events": "low 0\nhigh 0\nmax 9\noom 4\noom_kill 2\noom_group_kill 1\n",
        "pids.events": "max 3\n",
    },
}

MakeTree = Callable[..., tuple[RunCgroups, Path]]


@pytest.fixture
def make_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeTree]:
    """A cgroup tree: a new folder has control files at once, and a folder goes although it has them."""
    opened: list[int] = []
    make_folder, remove_folder = os.mkdir, os.rmdir
    files: list[str] = []

    def mkdir(path: str, *args: object, dir_fd: int | None = None) -> None:
        make_folder(path, dir_fd=dir_fd)
        for name in files:
            (tmp_path / path / name).touch()

    def rmdir(path: str, *, dir_fd: int | None = None) -> None:
        for name in files:
            (tmp_path / path / name).unlink(missing_ok=True)
        remove_folder(path, dir_fd=dir_fd)

    def make(version: int, controllers: list[str], without: tuple[str, ...] = ()) -> tuple[RunCgroups, Path]:
        files.extend(name for name in FILES[version] if name not in without)
        descriptor = os.open(tmp_path, os.O_RDONLY)
        opened.append(descriptor)
        hierarchy: HierarchySpec = {"version": version, "controllers": controllers, "descriptor": descriptor}  # type: ignore[typeddict-item]
        monkeypatch.setattr(os, "mkdir", mkdir)
        monkeypatch.setattr(os, "rmdir", rmdir)
        return RunCgroups([hierarchy], "run-1"), tmp_path / "run-1"

    yield make
    monkeypatch.undo()
    for descriptor in opened:
        os.close(descriptor)


def written(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir() if path.read_text()}


@pytest.mark.parametrize("version", [1, 2])
def test_every_limit_is_written(make_tree: MakeTree, version: int) -> None:
    cgroups, folder = make_tree(version, ["memory", "pids", "cpu"])
    cgroups.make(LIMITS)
    assert written(folder) == SETTINGS[version]
    cgroups.remove()


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("controller", ["memory", "pids", "cpu"])
def test_a_tree_gets_the_limits_of_its_controllers_alone(make_tree: MakeTree, version: int, controller: str) -> None:
    cgroups, folder = make_tree(version, [controller])
    cgroups.make(LIMITS)
    assert written(folder) == {name: value for name, value in SETTINGS[version].items() if name.startswith(controller)}
    cgroups.remove()


def test_swap_may_go_uncounted_in_version_1_alone(make_tree: MakeTree) -> None:
    cgroups, folder = make_tree(1, ["memory"], without=("memory.memsw.limit_in_bytes",))
    cgroups.make(LIMITS)
    assert written(folder) == {"memory.limit_in_bytes": "67108864"}
    cgroups.remove()


@pytest.mark.parametrize(("version", "missing"), [(1, "memory.limit_in_bytes"), (2, "memory.max"), (1, "pids.max")])
def test_a_limit_that_cannot_be_set_is_an_error(make_tree: MakeTree, version: int, missing: str) -> None:
    cgroups, _ = make_tree(version, ["memory", "pids"], without=(missing,))
    with pytest.raises(FileNotFoundError):
        cgroups.make(LIMITS)
    cgroups.remove()


@pytest.mark.parametrize(
    ("cpus", "quota"), [(0.01, "1000"), (0.001, "1000"), (1.0, "100000"), (2.5, "250000"), (64.0, "6400000")]
)
def test_a_share_of_the_processors_is_a_quota(make_tree: MakeTree, cpus: float, quota: str) -> None:
    cgroups, folder = make_tree(2, ["cpu"])
    cgroups.make({**LIMITS, "cpus": cpus})
    assert written(folder) == {"cpu.max": f"{quota} 100000"}
    cgroups.remove()


@pytest.mark.parametrize(("version", "name"), [(1, "tasks"), (2, "cgroup.procs")])
def test_an_entrance_leads_into_the_cgroup(make_tree: MakeTree, version: int, name: str) -> None:
    cgroups, folder = make_tree(version, ["pids"])
    cgroups.make(LIMITS)
    (entrance,) = cgroups.entrances()
    os.write(entrance, b"0")
    assert not os.get_inheritable(entrance)
    os.close(entrance)
    assert (folder / name).read_text() == "0"
    cgroups.remove()


@pytest.mark.parametrize("version", [1, 2])
def test_what_happened_is_read_from_the_kernels_counters(make_tree: MakeTree, version: int) -> None:
    cgroups, folder = make_tree(version, ["memory", "pids", "cpu"])
    cgroups.make(LIMITS)
    for name, text in COUNTERS[version].items():
        (folder / name).write_text(text)
    assert cgroups.peak_memory_bytes() == 5000
    assert cgroups.failures() == {"out_of_memory_kills": 2, "refused_processes": 3}
    cgroups.remove()


@pytest.mark.parametrize("version", [1, 2])
def test_counters_that_an_old_kernel_lacks_are_zero(make_tree: MakeTree, version: int) -> None:
    cgroups, _ = make_tree(version, ["memory", "pids"], without=tuple(COUNTERS[version]))
    cgroups.make(LIMITS)
    assert cgroups.peak_memory_bytes() == 0
    assert cgroups.failures() == {"out_of_memory_kills": 0, "refused_processes": 0}
    cgroups.remove()


@pytest.mark.parametrize("version", [1, 2])
def test_removing_takes_the_folder_away_and_closes_it(make_tree: MakeTree, version: int) -> None:
    before = os.listdir("/proc/self/fd")
    cgroups, folder = make_tree(version, ["memory"])
    cgroups.make(LIMITS)
    cgroups.remove()
    assert not folder.exists()
    assert len(os.listdir("/proc/self/fd")) == len(before) + 1  # the tree's own descriptor


def test_without_hierarchies_there_is_nothing_to_do() -> None:
    cgroups = RunCgroups([], "run-1")
    cgroups.make(LIMITS)
    assert cgroups.entrances() == []
    assert cgroups.peak_memory_bytes() == 0
    assert cgroups.failures() == {"out_of_memory_kills": 0, "refused_processes": None}
    cgroups.remove()
