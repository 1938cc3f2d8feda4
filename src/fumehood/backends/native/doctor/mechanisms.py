"""Every mechanism that the native backend builds on: what it is for, and what its absence means."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fumehood.backends.native.doctor.diagnosis import Check, Condition
from fumehood.backends.native.doctor.remedies import Settings, explain
from fumehood.guest.contract.probe import Answer

_USERS = "user namespaces"


@dataclass(frozen=True, slots=True)
class Mechanism:
    name: str
    purpose: str
    without: Condition = Condition.MISSING
    needs_users: bool = False
    """Nobody but root can have it outside of a user namespace, and we want it inside of one."""


BEFORE_CGROUPS = (
    Mechanism(_USERS, "users of its own, who are nobody outside"),
    Mechanism("mount namespace", "files of its own: it sees what it is given", needs_users=True),
    Mechanism("process namespace", "sees and signals its own processes alone", needs_users=True),
    Mechanism("network namespace", "no network but a loopback of its own", needs_users=True),
    Mechanism("IPC namespace", "shared memory and queues of its own", needs_users=True),
    Mechanism("UTS namespace", "a host name of its own", needs_users=True),
    Mechanism("cgroup namespace", "does not see where its limits come from", needs_users=True),
    Mechanism("fresh /proc", "lists its own processes, not the host's", needs_users=True),
    Mechanism("mount attributes", "makes what it sees read-only, as a whole", needs_users=True),
    Mechanism("id-mapped mounts", "mounted files look like its own", Condition.WEAKER, needs_users=True),
    Mechanism("Landlock", "a second wall around files", Condition.WEAKER),
    Mechanism("seccomp filter", "most system calls do not exist for it"),
    Mechanism("no_new_privs", "setuid programs give it nothing"),
)
AFTER_CGROUPS = (
    Mechanism("RLIMIT_NPROC", "a limit on processes, cgroup or not", needs_users=True),
    Mechanism("sealed memory", "requests that nobody can change on the way"),
    Mechanism("pidfd", "signals that cannot hit the wrong process"),
)


def judge(
    mechanisms: tuple[Mechanism, ...], answers: Mapping[str, Answer], settings: Settings, *, is_root: bool
) -> Iterator[Check]:
    for mechanism in mechanisms:
        answer = answers[mechanism.name]
        if mechanism.name == "id-mapped mounts" and not is_root:
            yield Check(mechanism.name, Condition.UNUSED, mechanism.purpose, "only for root")
        elif mechanism.needs_users and "error" in answers[_USERS]:
            yield Check(mechanism.name, mechanism.without, mechanism.purpose, f"needs {_USERS}")
        elif "error" in answer:
            remedy = explain(mechanism.name, answer, settings)
            yield Check(mechanism.name, mechanism.without, mechanism.purpose, remedy.reason, remedy.fixes)
        elif mechanism.name == "Landlock":
            yield _landlock(mechanism, answer.get("value", 0), settings)
        else:
            yield Check(mechanism.name, Condition.WORKS, mechanism.purpose)


def _landlock(mechanism: Mechanism, abi: int, settings: Settings) -> Check:
    if abi:
        return Check(mechanism.name, Condition.WORKS, mechanism.purpose, f"version {abi}")
    remedy = explain(mechanism.name, {"errno": 0, "error": "this kernel has it not, or switched off"}, settings)
    return Check(mechanism.name, mechanism.without, mechanism.purpose, remedy.reason, remedy.fixes)
