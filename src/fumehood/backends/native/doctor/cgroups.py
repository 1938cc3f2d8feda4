"""Cgroups: which controllers we may use, by making a group and joining it, and why not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fumehood.backends.native.cgroups import CONTROLLERS, CellCgroups
from fumehood.backends.native.doctor.diagnosis import MechanismCheck, MechanismState, Remedy, boot_with
from fumehood.backends.native.host_facts import HostFacts
from fumehood.guest.contract.probe import ProbeAnswer

Version = Literal[1, 2]

_PURPOSES = {
    "memory": "one limit for all its processes",
    "pids": "one limit on processes and threads",
    "cpu": "a fraction of a CPU for all of them",
}
_INSTEAD = {
    "memory": (MechanismState.WEAKER, "RLIMIT_AS limits each process by itself instead"),
    "pids": (MechanismState.UNUSED, "RLIMIT_NPROC holds the limit instead"),
    "cpu": (MechanismState.WEAKER, "whole CPUs are given by affinity instead, fractions are refused"),
}
_SCOPE = "systemd-run --user --scope -p Delegate=yes hood run ..."
_DELEGATE_CPU = (
    "sudo mkdir -p /etc/systemd/system/user@.service.d && \\\n"
    "  printf '[Service]\\nDelegate=cpu memory pids\\n' \\\n"
    "  | sudo tee /etc/systemd/system/user@.service.d/delegate.conf && \\\n"
    "  sudo systemctl daemon-reload   # then log in anew"
)
_AS_ROOT = "sudo hood run ..."
# Cells count from 1.
_TRIAL_NUMBER = 0


@dataclass(frozen=True, slots=True)
class TrialGroups:
    """Controller -> the file through which a process joins, or why there is none."""

    entrances: Mapping[str, Path]
    failures: Mapping[str, str]


@contextmanager
def open_trial_groups(machine: HostFacts) -> Iterator[TrialGroups]:
    """A group in each tree that looks usable; removed at the end."""
    made: list[CellCgroups] = []
    entrances: dict[str, Path] = {}
    failures: dict[str, str] = {}
    try:
        for hierarchy in machine.hierarchies:
            groups = CellCgroups([hierarchy], _TRIAL_NUMBER)
            made.append(groups)
            try:
                groups.make(None)
            except OSError as error:
                failures |= dict.fromkeys(hierarchy.controllers, str(error))
            else:
                entrance = next(iter(groups.entrances()), groups.folders[0] / "cgroup.procs")
                entrances |= dict.fromkeys(hierarchy.controllers, entrance)
        yield TrialGroups(entrances, failures)
    finally:
        for groups in made:
            groups.remove()


def judge_controllers(
    machine: HostFacts, answers: Mapping[str, ProbeAnswer], failures: Mapping[str, str]
) -> Iterator[MechanismCheck]:
    for controller in CONTROLLERS:
        name, purpose = f"{controller} cgroup", _PURPOSES[controller]
        hierarchy = machine.controls(controller)
        failure = failures.get(controller) or answers.get(name, {}).get("error")
        if hierarchy is None:
            yield _absent(controller, explain_absence(controller, version_of(controller), is_root=machine.is_root))
        elif failure:
            detail = f"{hierarchy.parent} looks usable but is not: {failure}"
            yield MechanismCheck(name, MechanismState.MISSING, purpose, detail, (_SCOPE,))
        else:
            yield MechanismCheck(name, MechanismState.WORKS, purpose, f"version {hierarchy.version}")
    yield _swap(machine)


def _absent(controller: str, remedy: Remedy) -> MechanismCheck:
    condition, instead = _INSTEAD[controller]
    fixes = remedy.fixes if condition is MechanismState.WEAKER else ()
    return MechanismCheck(
        f"{controller} cgroup", condition, _PURPOSES[controller], f"{remedy.reason}; {instead}", fixes
    )


def _swap(machine: HostFacts) -> MechanismCheck:
    name, purpose = "swap accounting", "memory that is swapped out counts too"
    if machine.controls("memory") is None:
        return MechanismCheck(name, MechanismState.UNUSED, purpose, "there is no memory cgroup to count in")
    if machine.swap_is_counted:
        return MechanismCheck(name, MechanismState.WORKS, purpose)
    fixes = ("sudo swapoff -a", boot_with("swapaccount=1"))
    return MechanismCheck(
        name, MechanismState.WEAKER, purpose, "this kernel was told not to count swap, and there is some", fixes
    )


def version_of(controller: str, mountinfo: Path = Path("/proc/self/mountinfo")) -> Version | None:
    """The cgroup version in which this system has the controller; None where it is nowhere."""
    for line in mountinfo.read_text().splitlines():
        fields, _, tail = line.partition(" - ")
        kind, _, options = tail.split()[:3]
        if kind == "cgroup" and controller in options.split(","):
            return 1
        if kind == "cgroup2":
            offered = Path(fields.split()[4]) / "cgroup.controllers"
            if offered.exists() and controller in offered.read_text().split():
                return 2
    return None


def explain_absence(controller: str, version: Version | None, *, is_root: bool) -> Remedy:
    match version:
        case None:
            return Remedy("no cgroup tree here has this controller")
        case 1 if not is_root:
            fixes = (_AS_ROOT, boot_with("systemd.unified_cgroup_hierarchy=1"))
            return Remedy("cgroups are of version 1 here, which only root can use", fixes)
        case 2 if not is_root:
            fixes = (_SCOPE, _DELEGATE_CPU) if controller == "cpu" else (_SCOPE,)
            return Remedy("the cgroup that we are in is not ours to divide", fixes)
        case _:
            return Remedy("the cgroup tree is mounted read-only", ("mount -o remount,rw /sys/fs/cgroup",))
