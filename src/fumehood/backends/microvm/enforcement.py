"""Decides, before a machine is started, how each control of a policy is enforced, or that it is not. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from fumehood.backends import enforcement, executables
from fumehood.backends.interface import Enforcement, EnforcementReport, PackageFolder
from fumehood.backends.microvm.acceleration import Acceleration
from fumehood.backends.native.host_facts import HostFacts
from fumehood.errors import UnenforceableError
from fumehood.policy import Policy

BACKEND = "microvm"
_ENFORCED = frozenset(
    {
        *("filesystem.workspace", "filesystem.outputs", "resources", "environment", "image"),
        *("commands", "network.allow", "network.publish", "network.shared_loopback", "secrets"),
    }
)
_RELAY = "a relay in the machine, over its serial port"
REBUILD = "`hood image build --vm`"
BEST_LAYERS = ("Landlock",)
_HARDWARE = "a machine with a kernel of its own, by hardware (KVM), in a QEMU that is itself in a native sandbox"
_SOFTWARE = (
    "a machine with a kernel of its own, whose processor is QEMU's software: its makers do not treat errors there as "
    "errors of security, so QEMU itself is in a native sandbox"
)


def refuse_unknown(policy: Policy) -> None:
    enforcement.refuse_too_many_ports(policy, BACKEND)
    if policy.filesystem.mounts:
        raise UnenforceableError(
            "filesystem.mounts",
            backend=BACKEND,
            reason="a machine shares no folder with the host",
            remedy="Upload files instead (`sandbox.files.upload`, `hood sandbox cp`), or use backend: native.",
        )
    enforcement.refuse_unknown(policy, _ENFORCED, BACKEND)


def refuse_host(facts: HostFacts) -> None:
    """QEMU is held by cgroups: without them its memory would be no limit at all."""
    for controller, limit in (("memory", "memory"), ("cpu", "cpus"), ("pids", "processes")):
        if facts.controls(controller) is None:
            raise UnenforceableError(
                f"resources.{limit}",
                backend=BACKEND,
                reason=f"there is no cgroup with the controller {controller} for QEMU",
                remedy="Run as root, or in a scope with delegated cgroups: see `hood doctor`.",
            )


def decide(
    policy: Policy,
    packages: PackageFolder | None,
    acceleration: Acceleration,
    layers: tuple[str, ...],
    *,
    packages_in_image: bool,
) -> EnforcementReport:
    """`layers` are what the guest puts on programs besides."""
    entries = (
        _kernel(acceleration),
        *_isolation(layers),
        *enforcement.report_network(policy, _RELAY, _RELAY),
        *_packages(packages, packages_in_image),
        *_commands(policy, layers),
        *_limits(policy),
    )
    remedy = "Turn strict off, use backend: native, docker or gvisor, or a host with KVM (`hood doctor` tries it)."
    enforcement.refuse_partial(policy, entries, BACKEND, remedy)
    return EnforcementReport(entries)


def _kernel(acceleration: Acceleration) -> Enforcement:
    if acceleration.accelerator == "kvm":
        return Enforcement("kernel", _HARDWARE)
    return Enforcement("kernel", f"{_SOFTWARE} ({acceleration.reason})", partial=True)


def _isolation(layers: tuple[str, ...]) -> Iterator[Enforcement]:
    behind = ", ".join(layers) or "nothing behind it"
    yield Enforcement("filesystem", f"a read-only disk of the machine's own, and no folder of the host ({behind})")
    yield Enforcement("filesystem.outputs", "file service in the machine, asked by the host for these paths alone")
    yield Enforcement("processes", "a machine of the sandbox's own")
    yield Enforcement("privileges", "an ordinary user of the machine; no capabilities; no_new_privs")
    yield Enforcement("system calls", "a kernel of the sandbox's own, and a seccomp allow list for programs")
    yield Enforcement("environment", "empty environment; all descriptors closed")
    yield Enforcement("image", "a folder of this user's, by its digest if the policy has one")


def _packages(packages: PackageFolder | None, in_image: bool) -> Iterator[Enforcement]:
    if packages is not None:
        yield Enforcement("environment.packages", f"read-only disk of a folder with the digest {packages.digest}")
    elif in_image:
        yield Enforcement("environment.packages", "folder of the image, which was made with them")


def _commands(policy: Policy, layers: tuple[str, ...]) -> Iterator[Enforcement]:
    has_landlock = "Landlock" in layers
    remedy = f"Use enforce: parse, or build the image again: {REBUILD}."
    where = "the machine's kernel"
    enforcement.refuse_without_landlock(policy, BACKEND, has_landlock=has_landlock, where=where, remedy=remedy)
    if entry := executables.report(policy, has_landlock=has_landlock):
        yield entry


def _limits(policy: Policy) -> Iterator[Enforcement]:
    shared = "for all runs of the sandbox together"
    yield Enforcement("resources.timeout", "clock in the machine, which kills the run; then the host's")
    yield Enforcement("resources.memory", f"memory cgroup of the machine's kernel, {shared}; QEMU has one on the host")
    yield Enforcement("resources.processes", "pids cgroup of the machine's kernel, for each run")
    yield Enforcement("resources.cpus", f"one processor at most, and the cpu cgroup of QEMU, {shared}")
    yield Enforcement("resources.disk", "tmpfs size, of /tmp, /var/tmp, /dev/shm and /run together")
    yield Enforcement("resources.inodes", "tmpfs inode count")
    yield from enforcement.report_counted(policy)
