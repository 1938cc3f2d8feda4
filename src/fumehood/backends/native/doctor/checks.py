"""Every mechanism that the native backend builds on, tried on this machine in the order in which a sandbox is built.

The kernel is asked by the probe program, which tries everything in children of its own, never in this process.
"""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import fumehood.guest
from fumehood.backends.native.doctor.cgroups import judge_controllers, open_trial_groups
from fumehood.backends.native.doctor.diagnosis import (
    Diagnosis,
    KernelSettings,
    MechanismCheck,
    MechanismState,
    explain,
    read_settings,
)
from fumehood.backends.native.host_facts import HostFacts, detect
from fumehood.errors import StepFailedError
from fumehood.guest.contract.probe import ProbeAnswer

_USERS = "user namespaces"
_PATIENCE_SECONDS = 120.0
_BOOT = "import sys; sys.path.insert(0, {folder!r}); from guest import probe; probe.main()"


@dataclass(frozen=True, slots=True)
class Mechanism:
    name: str
    purpose: str
    without: MechanismState = MechanismState.MISSING
    needs_users: bool = False
    """Only root can have it outside of a user namespace, and we want it inside of one."""


BEFORE_CGROUPS = (
    Mechanism(_USERS, "users of its own, with no rights outside"),
    Mechanism("mount namespace", "files of its own: it sees what it is given", needs_users=True),
    Mechanism("process namespace", "sees and signals its own processes alone", needs_users=True),
    Mechanism("network namespace", "no network but a loopback of its own", needs_users=True),
    Mechanism("IPC namespace", "shared memory and queues of its own", needs_users=True),
    Mechanism("UTS namespace", "a host name of its own", needs_users=True),
    Mechanism("cgroup namespace", "does not see where its limits come from", needs_users=True),
    Mechanism("fresh /proc", "lists its own processes, not the host's", needs_users=True),
    Mechanism("mount attributes", "makes what it sees read-only, as a whole", needs_users=True),
    Mechanism("id-mapped mounts", "mounted files look like its own", MechanismState.WEAKER, needs_users=True),
    Mechanism("Landlock", "a second wall around files", MechanismState.WEAKER),
    Mechanism("seccomp filter", "most system calls do not exist for it"),
    Mechanism("no_new_privs", "setuid programs give it nothing"),
)
AFTER_CGROUPS = (
    Mechanism("RLIMIT_NPROC", "a limit on processes, cgroup or not", needs_users=True),
    Mechanism("sealed memory", "requests that cannot change on the way"),
    Mechanism("pidfd", "signals that cannot hit the wrong process"),
)


def judge(
    mechanisms: tuple[Mechanism, ...], answers: Mapping[str, ProbeAnswer], settings: KernelSettings, *, is_root: bool
) -> Iterator[MechanismCheck]:
    for mechanism in mechanisms:
        answer = answers[mechanism.name]
        if mechanism.name == "id-mapped mounts" and not is_root:
            yield MechanismCheck(mechanism.name, MechanismState.UNUSED, mechanism.purpose, "only for root")
        elif mechanism.needs_users and "error" in answers[_USERS]:
            yield MechanismCheck(mechanism.name, mechanism.without, mechanism.purpose, f"needs {_USERS}")
        elif "error" in answer:
            remedy = explain(mechanism.name, answer, settings)
            yield MechanismCheck(mechanism.name, mechanism.without, mechanism.purpose, remedy.reason, remedy.fixes)
        elif mechanism.name == "Landlock":
            yield _landlock(mechanism, answer.get("value", 0), settings)
        else:
            yield MechanismCheck(mechanism.name, MechanismState.WORKS, mechanism.purpose)


def _landlock(mechanism: Mechanism, abi: int, settings: KernelSettings) -> MechanismCheck:
    if abi:
        return MechanismCheck(mechanism.name, MechanismState.WORKS, mechanism.purpose, f"version {abi}")
    remedy = explain(mechanism.name, {"errno": 0, "error": "this kernel has it not, or switched off"}, settings)
    return MechanismCheck(mechanism.name, mechanism.without, mechanism.purpose, remedy.reason, remedy.fixes)


def examine() -> Diagnosis:
    """Takes a fraction of a second and leaves nothing behind."""
    machine = detect()
    return Diagnosis(
        system=f"Linux {platform.release()}, {platform.machine()}, Python {platform.python_version()}",
        user="root" if machine.is_root else f"an ordinary user (uid {machine.uid})",
        checks=_checks(machine),
    )


def _checks(machine: HostFacts) -> tuple[MechanismCheck, ...]:
    with open_trial_groups(machine) as groups:
        answers = probe(machine, groups.entrances)
    settings = read_settings(is_root=machine.is_root, interpreter=machine.interpreter.executable)
    return (
        *judge(BEFORE_CGROUPS, answers, settings, is_root=machine.is_root),
        *judge_controllers(machine, answers, groups.failures),
        *judge(AFTER_CGROUPS, answers, settings, is_root=machine.is_root),
    )


def probe(machine: HostFacts, entrances: Mapping[str, Path]) -> dict[str, ProbeAnswer]:
    """One answer for each mechanism, and for each cgroup whose entrance is given."""
    folder = Path(fumehood.guest.__file__).parent.parent
    done = subprocess.run(
        [machine.interpreter.executable, "-I", "-S", "-c", _BOOT.format(folder=str(folder))],
        input=json.dumps({name: str(path) for name, path in entrances.items()}),
        capture_output=True,
        text=True,
        env={"LC_ALL": "C.UTF-8"},
        cwd="/",
        timeout=_PATIENCE_SECONDS,
    )
    if done.returncode != 0:
        raise StepFailedError("probing the kernel", done.stderr.strip() or f"exit code {done.returncode}", remedy="")
    return json.loads(done.stdout)
