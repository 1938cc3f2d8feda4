"""Finding where cgroups may be made, over made-up machines; making and removing them, for real where there are any."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from requirements import require

from fumehood.backends.native.cgroups import CellCgroups, Hierarchy, find_hierarchies, remove_stale, remove_tree


class FakeMachine:
    """A /proc/self and cgroup trees in a folder."""

    def __init__(self, folder: Path) -> None:
        self.root = folder
        self.proc = folder / "proc"
        self.proc.mkdir()
        self._cgroup: list[str] = []
        self._mountinfo = ["24 30 0:22 / /proc rw,nosuid - proc proc rw", "30 1 254:0 / / rw - ext4 /dev/vda rw"]

    def group(self, path: str, *, hands_down: str | None = None, procs: bool = True) -> Path:
        place = self.root / path.lstrip("/")
        place.mkdir(parents=True, exist_ok=True)
        if procs:
            (place / "cgroup.procs").touch()
        if hands_down is not None:
            (place / "cgroup.subtree_control").write_text(hands_down)
        return place

    def mount(self, path: str, kind: str, options: str, mount_root: str = "/") -> None:
        number = 40 + len(self._mountinfo)
        self._mountinfo.append(
            f"{number} 30 0:{number} {mount_root} {self.root}/{path} rw,relatime shared:9 - {kind} {kind} {options}"
        )

    def be_in(self, *lines: str) -> None:
        self._cgroup += lines

    def find(self) -> list[Hierarchy]:
        (self.proc / "cgroup").write_text("".join(f"{line}\n" for line in self._cgroup))
        (self.proc / "mountinfo").write_text("".join(f"{line}\n" for line in self._mountinfo))
        return find_hierarchies(self.proc)


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    return FakeMachine(tmp_path)


def test_version_1_has_a_tree_for_each_controller(machine: FakeMachine) -> None:
    for name in ("memory", "pids", "cpu", "blkio", "freezer"):
        machine.mount(name, "cgroup", f"rw,{name}")
        machine.group(f"{name}/own" if name == "memory" else name)
    machine.be_in("5:memory:/own", "4:pids:/", "3:cpu:/", "2:blkio:/", "1:freezer:/", "9:name=systemd:/")
    assert machine.find() == [
        Hierarchy(1, ("memory",), machine.root / "memory/own"),
        Hierarchy(1, ("pids",), machine.root / "pids"),
        Hierarchy(1, ("cpu",), machine.root / "cpu"),
    ]


def test_version_1_controllers_can_share_a_tree(machine: FakeMachine) -> None:
    machine.mount("cpu,cpuacct", "cgroup", "rw,cpu,cpuacct")
    machine.group("cpu,cpuacct/a")
    machine.be_in("3:cpu,cpuacct:/a")
    assert machine.find() == [Hierarchy(1, ("cpu", "cpuacct"), machine.root / "cpu,cpuacct/a")]


def test_version_1_in_a_container_without_a_cgroup_namespace(machine: FakeMachine) -> None:
    """The mount shows the container's own group as its root, while our path is told from the host's view."""
    machine.mount("memory", "cgroup", "rw,memory", mount_root="/docker/abc")
    machine.group("memory")
    machine.be_in("5:memory:/docker/abc")
    assert machine.find() == [Hierarchy(1, ("memory",), machine.root / "memory")]


def test_a_tree_in_which_we_cannot_see_ourselves_is_not_used(machine: FakeMachine) -> None:
    machine.mount("memory", "cgroup", "rw,memory")
    machine.group("memory")
    machine.be_in("5:memory:/not/visible/here")
    assert machine.find() == []


def test_a_tree_whose_groups_we_cannot_enter_is_not_used(machine: FakeMachine) -> None:
    machine.mount("memory", "cgroup", "rw,memory")
    machine.group("memory", procs=False)
    machine.be_in("5:memory:/")
    assert machine.find() == []


def test_version_2_goes_up_to_where_controllers_are_handed_down(machine: FakeMachine) -> None:
    """A login session: the scope holds our process, the slice above it was delegated to the user."""
    machine.mount("cgroup", "cgroup2", "rw,nsdelegate")
    slices = "user.slice/user-1000.slice/user@1000.service/app.slice"
    machine.group("cgroup", hands_down="cpuset cpu io memory pids")
    delegated = machine.group(f"cgroup/{slices}", hands_down="cpu memory pids\n")
    machine.group(f"cgroup/{slices}/term.scope", hands_down="")
    machine.be_in(f"0::/{slices}/term.scope")
    assert machine.find() == [Hierarchy(2, ("memory", "pids", "cpu"), delegated)]


def test_version_2_names_only_the_controllers_that_are_handed_down(machine: FakeMachine) -> None:
    machine.mount("cgroup", "cgroup2", "rw")
    delegated = machine.group("cgroup/slice", hands_down="memory pids")
    machine.group("cgroup/slice/scope", hands_down="")
    machine.be_in("0::/slice/scope")
    assert machine.find() == [Hierarchy(2, ("memory", "pids"), delegated)]


def test_version_2_at_the_very_top(machine: FakeMachine) -> None:
    machine.mount("cgroup", "cgroup2", "rw")
    top = machine.group("cgroup", hands_down="cpuset cpu io memory hugetlb pids rdma")
    machine.be_in("0::/")
    assert machine.find() == [Hierarchy(2, ("memory", "pids", "cpu"), top)]


def test_version_2_in_a_container_that_sees_its_own_group_as_the_top(machine: FakeMachine) -> None:
    """Its group holds processes, so it hands nothing down: there is nothing to use."""
    machine.mount("cgroup", "cgroup2", "rw")
    machine.group("cgroup", hands_down="")
    machine.be_in("0::/")
    assert machine.find() == []


def test_version_2_does_not_look_above_its_mount(machine: FakeMachine) -> None:
    (machine.root / "cgroup.subtree_control").write_text("memory")
    (machine.root / "cgroup.procs").touch()
    machine.mount("cgroup", "cgroup2", "rw")
    machine.group("cgroup/own", hands_down="")
    machine.group("cgroup", hands_down="")
    machine.be_in("0::/own")
    assert machine.find() == []


def test_version_2_without_controllers(machine: FakeMachine) -> None:
    machine.mount("unified", "cgroup2", "rw")
    machine.group("unified", hands_down="")
    machine.be_in("0::/")
    assert machine.find() == []


def test_a_hybrid_machine_uses_each_controller_once(machine: FakeMachine) -> None:
    machine.mount("memory", "cgroup", "rw,memory")
    machine.mount("unified", "cgroup2", "rw")
    machine.group("memory")
    unified = machine.group("unified", hands_down="pids")
    machine.be_in("1:memory:/", "0::/")
    assert machine.find() == [
        Hierarchy(1, ("memory",), machine.root / "memory"),
        Hierarchy(2, ("pids",), unified),
    ]


def test_a_controller_that_is_mounted_twice_is_used_once(machine: FakeMachine) -> None:
    for place in ("a", "b"):
        machine.mount(place, "cgroup", "rw,memory")
        machine.group(place)
    machine.be_in("1:memory:/")
    assert machine.find() == [Hierarchy(1, ("memory",), machine.root / "a")]


def test_a_machine_without_cgroups(machine: FakeMachine) -> None:
    machine.be_in()
    assert machine.find() == []


def own_hierarchy(tmp_path: Path, version: int = 1) -> Hierarchy:
    parent = tmp_path / "parent"
    parent.mkdir(exist_ok=True)
    return Hierarchy(version, ("memory", "pids"), parent)  # type: ignore[arg-type]


def test_a_cells_folder_carries_the_name_of_its_process(tmp_path: Path) -> None:
    first, second = (CellCgroups([own_hierarchy(tmp_path)], number) for number in (1, 2))
    first.make(None)
    second.make(None)
    assert len({*first.folders, *second.folders}) == 2
    assert all(folder.is_dir() and folder.name.startswith(f"fumehood-{os.getpid()}-") for folder in first.folders)
    assert (first.entrances(), second.entrances()) == ([], [])
    first.remove()
    assert list((tmp_path / "parent").iterdir()) == second.folders


def test_version_2_hands_controllers_down_and_keeps_the_cell_apart(tmp_path: Path) -> None:
    cgroups = CellCgroups([own_hierarchy(tmp_path, 2)], 1)
    cgroups.make(None)
    (folder,) = cgroups.folders
    assert (folder / "cgroup.subtree_control").read_text() == "+memory +pids"
    assert cgroups.entrances() == [folder / "cell" / "cgroup.procs"]
    assert (folder / "cell").is_dir()


def test_folders_that_cannot_all_be_made_are_none_at_all(tmp_path: Path) -> None:
    good = own_hierarchy(tmp_path)
    cgroups = CellCgroups([good, Hierarchy(1, ("cpu",), tmp_path / "missing")], 1)
    with pytest.raises(OSError):
        cgroups.make(None)
    assert list(good.parent.iterdir()) == []


def test_what_dead_processes_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    hierarchy = own_hierarchy(tmp_path)
    living = CellCgroups([hierarchy], 1)
    living.make(None)
    ours = living.folders[0].name
    started, namespace = ours.split("-")[2:4]
    stale = [
        f"fumehood-{2**22 + 5}-123-{namespace}-1",
        f"fumehood-{2**22 + 5}-123-{namespace}-2",
        f"fumehood-{os.getpid()}-{int(started) + 1}-{namespace}-1",
    ]
    others = ["fumehood-x", "fumehood-12", "fumehood-1-2-3-4-5", "other", f"{stale[0]}-more"]
    # Whether a process of another namespace lives cannot be known here.
    others += [f"fumehood-{2**22 + 5}-123-{int(namespace) + 1}-1", f"fumehood-{2**22 + 5}-123-unknown-1"]
    for name in (*stale, *others):
        (hierarchy.parent / name / "run-1").mkdir(parents=True)
    removed = remove_stale([hierarchy])
    assert sorted(path.name for path in removed) == sorted(stale)
    assert sorted(path.name for path in hierarchy.parent.iterdir()) == sorted([ours, *others])


def test_nothing_stale_is_nothing_to_do(tmp_path: Path) -> None:
    assert remove_stale([own_hierarchy(tmp_path)]) == []
    assert remove_stale([Hierarchy(1, ("cpu",), tmp_path / "missing")]) == []
    assert remove_tree(tmp_path / "missing")


def test_a_real_cgroup_is_removed_only_when_it_is_empty() -> None:
    hierarchies = find_hierarchies()
    require(hierarchies, "no cgroups are delegated to this user")
    cgroups = CellCgroups(hierarchies, 987_654)
    cgroups.make(None)
    try:
        for hierarchy, folder in zip(hierarchies, cgroups.folders, strict=True):
            group = folder / "run-1" if hierarchy.version == 2 else folder
            group.mkdir(exist_ok=True)
            with subprocess.Popen(["sleep", "100"]) as process:
                (group / "cgroup.procs").write_text(str(process.pid))
                assert not remove_tree(folder, patience_seconds=0.05)
                process.kill()
        cgroups.remove()
        assert not any(folder.exists() for folder in cgroups.folders)
    finally:
        cgroups.remove()
