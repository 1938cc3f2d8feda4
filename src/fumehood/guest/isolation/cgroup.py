"""One run's cgroups: made by the cell, joined by the run's process, read and removed when it is over.

The cell stays outside of them, so that it can always act: a program that uses up its CPU quota or its memory cannot
slow down or kill the process that has to stop it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import TypedDict

from ..contract.cell_spec import CellLimits, HierarchySpec
from ..contract.limits import SOCKET_PART_OF_MEMORY

_CPU_PERIOD_US = 100_000
# By version. A process that moves as a whole makes the kernel wait until no processor is in the middle of a fork, which
# takes milliseconds; one thread that moves itself does not. Version 2 lets no single thread leave its process.
_ENTRANCE = {1: "tasks", 2: "cgroup.procs"}


class CgroupFailures(TypedDict):
    """How often the kernel had to enforce a limit."""

    out_of_memory_kills: int
    refused_processes: int | None
    """None where nothing counts them."""


class RunCgroups:
    """The cgroups of one run, one in each hierarchy; two on the same controller never exist."""

    def __init__(self, hierarchies: list[HierarchySpec], name: str) -> None:
        self._hierarchies = hierarchies
        self._name = name
        self._folders: list[int] = []

    def make(self, limits: CellLimits) -> None:
        for hierarchy in self._hierarchies:
            os.mkdir(self._name, dir_fd=hierarchy["descriptor"])
            folder = os.open(self._name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=hierarchy["descriptor"])
            self._folders.append(folder)
            for name, value in _settings(hierarchy, limits):
                _write(folder, name, value)

    def add_memory(self, limits: CellLimits, bytes_more: int) -> None:
        more: CellLimits = {**limits, "memory_bytes": limits["memory_bytes"] + bytes_more}
        for hierarchy, folder in zip(self._hierarchies, self._folders, strict=True):
            # Last one first: version 1 wants the limit with swap never to be below the other.
            for name, value in reversed(_settings(hierarchy, more)):
                _write(folder, name, value)

    def entrances(self) -> list[int]:
        """Writing "0" to each of them moves the writer and its one thread; children are born where their parent is."""
        return [
            os.open(_ENTRANCE[hierarchy["version"]], os.O_WRONLY | os.O_CLOEXEC, dir_fd=folder)
            for hierarchy, folder in zip(self._hierarchies, self._folders, strict=True)
        ]

    def peak_memory_bytes(self) -> int:
        """0 where nothing counts it."""
        for version, folder in self._with("memory"):
            return _read_number(folder, "memory.peak" if version == 2 else "memory.max_usage_in_bytes")
        return 0

    def cpu_seconds(self) -> float:
        """Of every process that was ever in it, whether anybody has waited for it or not; 0 where nothing counts it."""
        for hierarchy, folder in zip(self._hierarchies, self._folders, strict=True):
            if hierarchy["version"] == 2:
                return _read_counter(folder, "cpu.stat", "usage_usec") / 1e6
            if "cpuacct" in hierarchy["controllers"]:
                return _read_number(folder, "cpuacct.usage") / 1e9
        return 0.0

    def failures(self) -> CgroupFailures:
        kills, refused = 0, None
        for version, folder in self._with("memory"):
            kills = _read_counter(folder, "memory.events" if version == 2 else "memory.oom_control", "oom_kill")
        for _, folder in self._with("pids"):
            refused = _read_counter(folder, "pids.events", "max")
        return {"out_of_memory_kills": kills, "refused_processes": refused}

    def _with(self, controller: str) -> Iterator[tuple[int, int]]:
        for hierarchy, folder in zip(self._hierarchies, self._folders, strict=True):
            if controller in hierarchy["controllers"]:
                yield hierarchy["version"], folder

    def remove(self) -> None:
        """Works only when no process is left in it, which makes it the last proof that the run is over."""
        for folder in self._folders:
            os.close(folder)
        self._folders = []
        for hierarchy in self._hierarchies:
            with suppress(FileNotFoundError):
                os.rmdir(self._name, dir_fd=hierarchy["descriptor"])


def _settings(hierarchy: HierarchySpec, limits: CellLimits) -> list[tuple[str, str]]:
    controllers, modern = hierarchy["controllers"], hierarchy["version"] == 2
    memory, quota = str(limits["memory_bytes"]), max(1000, round(limits["cpus"] * _CPU_PERIOD_US))
    settings: list[tuple[str, str]] = []
    if "memory" in controllers and modern:
        settings += [("memory.max", memory), ("memory.swap.max", "0"), ("memory.oom.group", "1")]
    elif "memory" in controllers:
        # The second is missing where the kernel does not count swap; the host has checked that there is none then.
        settings += [("memory.limit_in_bytes", memory), ("?memory.memsw.limit_in_bytes", memory)]
        settings.append(("?memory.kmem.tcp.limit_in_bytes", str(limits["memory_bytes"] // SOCKET_PART_OF_MEMORY)))
    if "pids" in controllers:
        settings.append(("pids.max", str(limits["processes"])))
    if "cpu" in controllers and modern:
        settings.append(("cpu.max", f"{quota} {_CPU_PERIOD_US}"))
    elif "cpu" in controllers:
        settings += [("cpu.cfs_period_us", str(_CPU_PERIOD_US)), ("cpu.cfs_quota_us", str(quota))]
    return settings


def _write(folder: int, name: str, value: str) -> None:
    optional, name = name.startswith("?"), name.removeprefix("?")
    try:
        descriptor = os.open(name, os.O_WRONLY | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        if optional:
            return
        raise
    try:
        os.write(descriptor, value.encode())
    finally:
        os.close(descriptor)


def _read(folder: int, name: str) -> str:
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        return ""  # memory.peak came with Linux 5.19
    try:
        return os.read(descriptor, 4096).decode()
    finally:
        os.close(descriptor)


def _read_number(folder: int, name: str) -> int:
    return int(_read(folder, name) or 0)


def _read_counter(folder: int, name: str, key: str) -> int:
    for line in _read(folder, name).splitlines():
        word, _, value = line.partition(" ")
        if word == key:
            return int(value)
    return 0
