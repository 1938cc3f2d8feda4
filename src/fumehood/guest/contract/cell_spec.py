"""What the host tells a new cell: plain data, written by the host, trusted by the cell."""

from __future__ import annotations

from typing import Literal, TypedDict


class BindSpec(TypedDict):
    source: str
    target: str
    mode: Literal["ro", "rw", "device"]
    executes: bool
    """Whether programs and libraries in it may be executed."""
    owner: int | None
    """Host uid that the sandbox's user has, when the source's owner is to be shown as that user."""


class HierarchySpec(TypedDict):
    """One cgroup tree in which the cell may make cgroups for its runs."""

    version: Literal[1, 2]
    controllers: list[str]
    descriptor: int


class CellLimits(TypedDict):
    memory_bytes: int
    processes: int
    cpus: float
    disk_bytes: int
    workspace_bytes: int
    inodes: int
    open_files: int
    cpu_seconds: float | None
    """CPU seconds of one process; None for no limit besides the wall clock."""
    address_space_bytes: int | None
    """Set where no cgroup limits memory."""
    affinity: list[int] | None
    """Set where no cgroup limits CPU time."""


class CellSpec(TypedDict):
    host_process: int
    """A pidfd of the host: readable when it is gone."""
    rootless: bool
    host_uid: int
    host_gid: int
    uid_base: int
    """First host uid of the sandbox's range; only with a root host."""
    binds: list[BindSpec]
    folders: list[str]
    files: dict[str, str]
    programs: dict[str, str]
    """Scripts, like `files`, that can be executed."""
    symlinks: dict[str, str]
    covered: dict[str, str]
    """Folders and files inside a bind -> what of the new root is shown in their place."""
    writable: dict[str, bool]
    """Targets of writable binds, and whether programs may make sockets in them."""
    executables: list[str] | None
    """Names and paths of the only programs that can be executed; None when any can."""
    hierarchies: list[HierarchySpec]
    entrances: list[int]
    """Files through which the cell moves itself before it makes cgroups for its runs."""
    limits: CellLimits
    preload: list[str]
    module_path: list[str]
    """Folders of the environment's packages, after the standard library."""
    environment: dict[str, str]
    ports: list[int]
    """Where runs usually have a listener to the gateway; none without network rules."""
    shares_loopback: bool
    """Whether runs in one workspace share a network namespace."""
    standbys: int
    idle_seconds: float
    """A cell without a request for so long ends by itself."""
