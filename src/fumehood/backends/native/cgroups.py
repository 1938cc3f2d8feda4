"""Cgroup trees on the host side: find where ours may be made, make one for each cell, remove what is left over.

The run's own cgroups are made by the guest, inside the folder that is handed to it here. Both cgroup versions.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal

from fumehood.frozen import frozen
from fumehood.host import processes
from fumehood.tenant import LOCAL, USUAL_CPU_WEIGHT, Tenant

CONTROLLERS = ("memory", "pids", "cpu")
_CPU_ACCOUNTING = "cpuacct"
"""Version 1 counts processor time by itself, often in a hierarchy of its own; version 2 does so in every group."""
_TENANTS = "fumehood"
"""The cgroup of all tenants: theirs are in it, and their cells in those."""
_USUAL_CPU_SHARES = 1024
# Of version 1; the first is missing where the kernel does not count swap.
_WITH_SWAP, _WITHOUT_SWAP = "memory.memsw.limit_in_bytes", "memory.limit_in_bytes"
_ATTEMPTS = 10
_REMOVED_MEANWHILE = (errno.ENOENT, errno.ENODEV, errno.EEXIST, errno.EINVAL)
"""What is said of a tenant's group that another process removes at this moment, because it is empty, or makes anew."""
_NAME = re.compile(r"fumehood-(?P<process>\d+)-(?P<started>\d+)-(?P<namespace>\w+)-\d+")


@frozen
class Hierarchy:
    """A place in a mounted cgroup tree where we may make cgroups, and the controllers that work there."""

    version: Literal[1, 2]
    controllers: tuple[str, ...]
    parent: Path


def find_hierarchies(proc: Path = Path("/proc/self")) -> list[Hierarchy]:
    """Every controller at most once; empty where nothing is delegated to us."""
    own_paths = _own_paths((proc / "cgroup").read_text())
    found: list[Hierarchy] = []
    for line in (proc / "mountinfo").read_text().splitlines():
        hierarchy = _hierarchy(line, own_paths)
        taken = {name for other in found for name in other.controllers}
        if hierarchy and not taken & set(hierarchy.controllers) and _can_make_groups(hierarchy.parent):
            found.append(hierarchy)
    return found


def own_modern_group(proc: Path = Path("/proc/self")) -> Path | None:
    """The group of version 2 that this process is in; None for the topmost, and where version 2 is not mounted."""
    own = _own_paths((proc / "cgroup").read_text()).get("")
    for line in (proc / "mountinfo").read_text().splitlines():
        fields, _, tail = line.partition(" - ")
        mount_root, mount_point = fields.split()[3:5]
        if tail.split()[0] == "cgroup2" and own is not None:
            place = _place(mount_point, mount_root, own)
            return None if place == Path(mount_point) else place
    return None


def _own_paths(text: str) -> dict[str, str]:
    """Controller (or "" for version 2) -> the cgroup we are in."""
    paths: dict[str, str] = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            paths[controller] = path
    return paths


def _hierarchy(mountinfo_line: str, own_paths: dict[str, str]) -> Hierarchy | None:
    fields, _, tail = mountinfo_line.partition(" - ")
    mount_root, mount_point = fields.split()[3:5]
    kind, _, options = tail.split()[:3]
    if kind == "cgroup":
        wanted = (*CONTROLLERS, _CPU_ACCOUNTING)
        controllers = tuple(name for name in wanted if name in options.split(",") and name in own_paths)
        if not controllers:
            return None
        return Hierarchy(1, controllers, _place(mount_point, mount_root, own_paths[controllers[0]]))
    if kind == "cgroup2" and "" in own_paths:
        return _modern_hierarchy(Path(mount_point), _place(mount_point, mount_root, own_paths[""]))
    return None


def _place(mount_point: str, mount_root: str, own: str) -> Path:
    relative = own.removeprefix(mount_root) if mount_root != "/" else own
    return Path(mount_point) / relative.lstrip("/")


def _modern_hierarchy(mount_point: Path, own: Path) -> Hierarchy | None:
    """Version 2 forbids processes beside child groups, so go up to where there are none, or to the top."""
    for place in (own, *own.parents):
        enabled = _enabled_controllers(place)
        if enabled:
            return Hierarchy(2, enabled, place)
        if place == mount_point:
            break
    return None


def _enabled_controllers(place: Path) -> tuple[str, ...]:
    """Those that children of `place` have, or can get, because it hands them down."""
    with suppress(OSError):
        handed_down = (place / "cgroup.subtree_control").read_text().split()
        return tuple(name for name in CONTROLLERS if name in handed_down)
    return ()


def _can_make_groups(parent: Path) -> bool:
    return os.access(parent, os.W_OK) and os.access(parent / "cgroup.procs", os.W_OK)


def tenant_hierarchies(hierarchies: list[Hierarchy], tenant: Tenant) -> list[Hierarchy]:
    """The same hierarchies at the tenant's own cgroup, below which are all its cells."""
    if not tenant.name:
        return hierarchies
    return [replace(each, parent=each.parent / _TENANTS / tenant.name) for each in hierarchies]


def _make_tenant_group(hierarchy: Hierarchy, tenant: Tenant) -> None:
    """A tenant's cgroup, with the limits that the tenant has now; several processes may have cells there."""
    for folder in (hierarchy.parent.parent, hierarchy.parent):
        folder.mkdir(exist_ok=True)
        if hierarchy.version == 2:
            (folder / "cgroup.subtree_control").write_text(" ".join(f"+{n}" for n in hierarchy.controllers))
    # Neither a tenant's group nor that of all tenants stays: an empty one is removed, and its lock with it.
    with _alone_in(hierarchy.parent.parent.parent):
        for name, value in _tenant_settings(hierarchy, tenant):
            if name != _WITH_SWAP or (hierarchy.parent / name).exists():
                (hierarchy.parent / name).write_text(value)


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Two limits that depend on each other are set by one process at a time: the kernel refuses a mixture."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _tenant_settings(hierarchy: Hierarchy, tenant: Tenant) -> Iterator[tuple[str, str]]:
    modern, memory = hierarchy.version == 2, tenant.memory_bytes
    if "memory" in hierarchy.controllers and modern:
        yield "memory.max", "max" if memory is None else str(memory)
    elif "memory" in hierarchy.controllers:
        # The limit with swap may never be below the other one, whatever both were before.
        yield from ((_WITH_SWAP, "-1"), (_WITHOUT_SWAP, "-1"))
        yield from () if memory is None else ((_WITHOUT_SWAP, str(memory)), (_WITH_SWAP, str(memory)))
    if "cpu" in hierarchy.controllers:
        shares = max(2, tenant.cpu_weight * _USUAL_CPU_SHARES // USUAL_CPU_WEIGHT)
        yield ("cpu.weight", str(tenant.cpu_weight)) if modern else ("cpu.shares", str(shares))


class CellCgroups:
    """One cell's folder in each hierarchy."""

    def __init__(self, hierarchies: list[Hierarchy], number: int, tenant: Tenant = LOCAL) -> None:
        self._hierarchies, self._tenant = tenant_hierarchies(hierarchies, tenant), tenant
        process = os.getpid()
        self._name = f"fumehood-{process}-{processes.start_time(process)}-{processes.namespace()}-{number}"

    @property
    def folders(self) -> list[Path]:
        return [hierarchy.parent / self._name for hierarchy in self._hierarchies]

    def make(self, owner: int | None) -> None:
        """`owner` is the host uid of the cell's root, when that is not ourselves. All or none."""
        try:
            self._make(owner)
        except OSError:
            self.remove()
            raise

    def _make(self, owner: int | None) -> None:
        for hierarchy, folder in zip(self._hierarchies, self.folders, strict=True):
            self._make_folder(hierarchy, folder)
            if hierarchy.version == 2:
                (folder / "cgroup.subtree_control").write_text(" ".join(f"+{n}" for n in hierarchy.controllers))
                (folder / "cell").mkdir()
            if owner is not None:
                for path in (folder, folder / "cgroup.procs"):
                    os.chown(path, owner, owner)

    def _make_folder(self, hierarchy: Hierarchy, folder: Path) -> None:
        """Again, if another process removed the tenant's cgroup because it was empty."""
        if not self._tenant.name:
            folder.mkdir()
            return
        for attempt in reversed(range(_ATTEMPTS)):
            try:
                _make_tenant_group(hierarchy, self._tenant)
                folder.mkdir()
                return
            except OSError as error:
                if attempt == 0 or error.errno not in _REMOVED_MEANWHILE:
                    raise

    def entrances(self) -> list[Path]:
        """Where the cell has to be for its runs to be movable: version 2 wants a common, delegated ancestor."""
        return [
            folder / "cell" / "cgroup.procs"
            for hierarchy, folder in zip(self._hierarchies, self.folders, strict=True)
            if hierarchy.version == 2
        ]

    def remove(self) -> None:
        for folder in self.folders:
            remove_tree(folder)
        if self._tenant.name:
            _remove_empty(hierarchy.parent for hierarchy in self._hierarchies)


def remove_tree(folder: Path, patience_seconds: float = 2.0) -> bool:
    """Remove a cgroup and those below it; processes that were just killed may need a moment to leave."""
    deadline = time.monotonic() + patience_seconds
    while True:
        try:
            for child in [entry for entry in folder.iterdir() if entry.is_dir()]:
                remove_tree(child, max(0.0, deadline - time.monotonic()))
            folder.rmdir()
        except FileNotFoundError:
            return True
        except OSError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        else:
            return True


def _remove_empty(tenants: Iterable[Path]) -> None:
    """Cgroups of tenants, and of all tenants, that have no cell any more."""
    for tenant in tenants:
        with suppress(OSError):
            tenant.rmdir()
            tenant.parent.rmdir()


def remove_stale(hierarchies: list[Hierarchy]) -> list[Path]:
    """Remove what dead processes left behind where we make ours; returns what was removed."""
    cells = ("fumehood-*", f"{_TENANTS}/*/fumehood-*")
    return _remove_dead(folder for each in hierarchies for cell in cells for folder in each.parent.glob(cell))


def remove_stale_everywhere() -> list[Path]:
    """The same in every cgroup of this machine: a session may have had a place of its own."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    places = [place for _, place, kind, *_ in mounts if kind in ("cgroup", "cgroup2")]
    return _remove_dead(folder for place in places for folder in Path(place).rglob("fumehood-*"))


def _remove_dead(folders: Iterable[Path]) -> list[Path]:
    removed: list[Path] = []
    for folder in list(folders):
        match = _NAME.fullmatch(folder.name)
        if match and _is_dead(match) and remove_tree(folder, 0):
            removed.append(folder)
            if folder.parent.parent.name == _TENANTS:
                _remove_empty([folder.parent])
    return removed


def _is_dead(owner: re.Match[str]) -> bool:
    return processes.has_ended(owner["namespace"], int(owner["process"]), owner["started"])
