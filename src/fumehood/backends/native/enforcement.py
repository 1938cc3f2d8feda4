"""Decides, before anything starts, how each control of a policy is enforced here, or that it is not. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from fumehood.backends import enforcement, executables, mounts
from fumehood.backends.interface import Enforcement, EnforcementReport, PackageFolder
from fumehood.backends.native.host_facts import HostFacts
from fumehood.errors import UnenforceableError
from fumehood.policy import Policy
from fumehood.tenant import USUAL_CPU_WEIGHT, Tenant

BACKEND = "native"
_ENFORCED = frozenset(
    {
        *("filesystem.mounts", "filesystem.workspace", "filesystem.outputs", "resources", "environment"),
        *("commands", "network.allow", "network.publish", "network.shared_loopback", "secrets"),
    }
)
_FIRST_PORT = 1024
_DELEGATE = (
    "Run as root, or in a scope with delegated cgroups: "
    "`systemd-run --user --scope -p Delegate=yes hood ...`; see `hood doctor`."
)


def decide(
    policy: Policy, facts: HostFacts, packages: PackageFolder | None = None, *, mounts_are_searched: bool = True
) -> EnforcementReport:
    """The report, or UnenforceableError for the first control that cannot be had."""
    enforcement.refuse_unknown(policy, _ENFORCED, BACKEND)
    enforcement.refuse_too_many_ports(policy, BACKEND)
    _refuse_low_ports(policy)
    report = EnforcementReport(
        (
            *_isolation(policy, facts),
            *_mounts(policy, mounts_are_searched),
            *_packages(packages),
            *_commands(policy, facts),
            *_limits(policy, facts),
        )
    )
    enforcement.refuse_partial(policy, report.entries, BACKEND, _DELEGATE)
    return report


def refuse_tenant(tenant: Tenant, facts: HostFacts) -> None:
    """UnenforceableError for a limit of a tenant that no cgroup here enforces."""
    wanted = (("memory", tenant.memory_bytes is not None), ("cpu", tenant.cpu_weight != USUAL_CPU_WEIGHT))
    for controller, is_wanted in wanted if tenant.is_limited else ():
        if is_wanted and facts.controls(controller) is None:
            raise UnenforceableError(
                f"{controller} of tenant {tenant.name}",
                backend=BACKEND,
                reason=f"there is no cgroup with the controller {controller}",
                remedy=_DELEGATE,
            )


def _refuse_low_ports(policy: Policy) -> None:
    """No program could listen there, and its address would never answer."""
    low = [port for port in policy.network.publish if port < _FIRST_PORT]
    if low:
        raise UnenforceableError(
            "network.publish",
            backend=BACKEND,
            reason=f"programs have no privileges, and port {low[0]} is below {_FIRST_PORT}",
            remedy=f"Let the server listen on another port, such as {8000 + low[0]}.",
        )


def _isolation(policy: Policy, facts: HostFacts) -> Iterator[Enforcement]:
    user = "an unprivileged uid range" if facts.is_root else f"your own uid {facts.uid}, alone"
    yield _files(facts)
    yield Enforcement("filesystem.outputs", "file service in the sandbox, asked by the host for these paths alone")
    yield from enforcement.report_network(
        policy,
        "listening sockets that the run itself does not hold",
        "sockets that the cell makes in the sandbox's network",
    )
    yield Enforcement("processes", "process and IPC namespaces")
    yield Enforcement("privileges", f"two user namespaces mapped to {user}; no capabilities; no_new_privs")
    yield Enforcement("system calls", "seccomp allow list")
    yield Enforcement("environment", "empty environment; all descriptors closed")


def _mounts(policy: Policy, are_searched: bool) -> Iterator[Enforcement]:
    if policy.filesystem.mounts:
        shown = "mounts, read-only unless the policy says otherwise"
        yield mounts.sockets_report(shown, is_searched=are_searched)


def _packages(packages: PackageFolder | None) -> Iterator[Enforcement]:
    if packages is not None:
        yield Enforcement("environment.packages", f"read-only mount of a folder with the digest {packages.digest}")


def _commands(policy: Policy, facts: HostFacts) -> Iterator[Enforcement]:
    has_landlock = bool(facts.landlock_abi)
    remedy = "Linux 5.13 has it; else use enforce: parse."
    enforcement.refuse_without_landlock(policy, BACKEND, has_landlock=has_landlock, where="the kernel", remedy=remedy)
    if entry := executables.report(policy, has_landlock=has_landlock):
        yield entry


def _limits(policy: Policy, facts: HostFacts) -> Iterator[Enforcement]:
    yield Enforcement("resources.timeout", "clock in the cell, which kills the run's process namespace")
    yield _memory(facts)
    yield _cpus(policy, facts)
    yield _processes(facts)
    yield Enforcement("resources.disk", "tmpfs size")
    yield Enforcement("resources.inodes", "tmpfs inode count")
    yield from enforcement.report_counted(policy)


def _files(facts: HostFacts) -> Enforcement:
    wall = "mount namespace with a minimal read-only root"
    if not facts.landlock_abi:
        return Enforcement("filesystem", f"{wall}, but no Landlock behind it (Linux 5.13 has it)", partial=True)
    return Enforcement("filesystem", f"{wall}, Landlock (version {facts.landlock_abi})")


def _memory(facts: HostFacts) -> Enforcement:
    hierarchy = facts.controls("memory")
    if hierarchy is None:
        return Enforcement("resources.memory", "RLIMIT_AS, for each process", partial=True)
    if not facts.swap_is_counted:
        return Enforcement("resources.memory", "memory cgroup (version 1), without swap", partial=True)
    return Enforcement("resources.memory", f"memory cgroup (version {hierarchy.version}), swap included")


def _cpus(policy: Policy, facts: HostFacts) -> Enforcement:
    hierarchy = facts.controls("cpu")
    if hierarchy is not None:
        return Enforcement("resources.cpus", f"cpu cgroup quota (version {hierarchy.version})")
    cpus = policy.resources.cpus
    if cpus >= len(facts.cpus):
        return Enforcement("resources.cpus", f"this machine has {len(facts.cpus)}")
    if cpus != int(cpus):
        raise UnenforceableError(
            "resources.cpus",
            backend=BACKEND,
            reason=f"{cpus} of a CPU needs the cpu cgroup controller, which is not delegated to this user",
            remedy=f"Use a whole number. {_DELEGATE}",
        )
    return Enforcement("resources.cpus", f"CPU affinity to {int(cpus)}")


def _processes(facts: HostFacts) -> Enforcement:
    hierarchy = facts.controls("pids")
    if hierarchy is not None:
        return Enforcement("resources.processes", f"pids cgroup (version {hierarchy.version}), RLIMIT_NPROC")
    return Enforcement("resources.processes", "RLIMIT_NPROC in the run's own user namespace")
