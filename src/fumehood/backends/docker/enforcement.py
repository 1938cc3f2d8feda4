"""Decides, before a container is made, how an engine enforces each control of a policy, or that it does not. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from fumehood.backends import enforcement, executables, mounts
from fumehood.backends.docker import socket_buffers
from fumehood.backends.docker.engine import EngineFacts, ImageFacts
from fumehood.backends.docker.interpreter import PLACE
from fumehood.backends.interface import Enforcement, EnforcementReport, PackageFolder
from fumehood.errors import UnenforceableError, UsageError
from fumehood.policy import Policy
from fumehood.policy.paths import is_inside
from fumehood.tenant import Tenant

_ENFORCED = frozenset(
    {
        *("filesystem.mounts", "filesystem.workspace", "filesystem.outputs", "resources", "environment", "docker"),
        *("image", "commands", "network.allow", "network.publish", "network.shared_loopback", "secrets"),
    }
)
_RELAY = "a relay in the container, over its control stream"
_NO_CGROUPS = "Give the engine cgroups with the {} controller, or use backend: native."
# What the guest can put on programs where the kernel has it; only the container itself can tell.
BEST_LAYERS = ("Landlock",)
MAKE_IMAGE = "Make an image that has them: `hood image build --policy FILE`."
INSTALL_RUNSC = (
    "Install gVisor (`sudo apt-get install runsc`), then `sudo runsc install` and `sudo systemctl restart docker`."
)


def refuse_unknown(policy: Policy, backend: str) -> None:
    enforcement.refuse_too_many_ports(policy, backend)
    enforcement.refuse_unknown(policy, _ENFORCED, backend)
    if policy.commands.enforce == "kernel" and backend == "gvisor":
        refuse_without_landlock(policy, backend, layers=())


def refuse_tenant(tenant: Tenant, backend: str) -> None:
    """Containers are not in the cgroup of a tenant."""
    if tenant.is_limited:
        raise UnenforceableError(
            f"memory and cpu of tenant {tenant.name}",
            backend=backend,
            reason="its containers are the engine's, each with limits of its own and none together",
            remedy="Use the backend native, or an engine of the tenant's own that limits all of them.",
        )


def refuse_without_landlock(policy: Policy, backend: str, layers: tuple[str, ...]) -> None:
    enforcement.refuse_without_landlock(
        policy,
        backend,
        has_landlock="Landlock" in layers,
        where="the sandbox's kernel",
        remedy="Use enforce: parse, or backend: native.",
    )


def refuse_machine(
    policy: Policy,
    backend: str,
    runtime: str,
    facts: EngineFacts,
    image: ImageFacts,
    packages: PackageFolder | None = None,
) -> None:
    """What this engine, or this image on it, cannot do."""

    def refuse(control: str, reason: str, remedy: str) -> None:
        raise UnenforceableError(control, backend=backend, reason=reason, remedy=remedy)

    if runtime not in facts.runtimes:
        known = ", ".join(facts.runtimes)
        remedy = INSTALL_RUNSC if "runsc" in runtime else f"Register it with the engine, or use one of: {known}."
        refuse("docker.runtime", f"the engine at {facts.host} has no runtime {runtime!r}", remedy)
    if backend == "gvisor" and runtime not in facts.gvisor_runtimes:
        reason = f"runtime {runtime!r} of the engine at {facts.host} is not gVisor"
        refuse("docker.runtime", reason, "Remove docker.runtime from the policy, or use backend: docker.")
    if image.machine != facts.machine:
        reason = (
            f"image {image.reference!r} is for {image.machine} and the engine at {facts.host} is on {facts.machine}"
        )
        refuse("image", reason, "Use an image for that machine; `hood image build` makes one.")
    for limit in ("memory", "cpus", "processes"):
        if limit not in facts.limits:
            reason = f"the engine at {facts.host} cannot limit it"
            refuse(f"resources.{limit}", reason, _NO_CGROUPS.format("pids" if limit == "processes" else limit[:6]))
    if not any("seccomp" in option for option in facts.security):
        refuse("system calls", f"the engine at {facts.host} has no seccomp", "Use an engine with seccomp.")
    if policy.filesystem.mounts and not facts.is_local:
        reason = f"the engine at {facts.host} is elsewhere, and paths of this machine mean nothing to it"
        refuse("filesystem.mounts", reason, "Write files into the workspace instead, or use a local engine.")
    if packages and not facts.is_local:
        reason = f"the engine at {facts.host} is elsewhere, and image {image.reference!r} was not made with them"
        refuse("environment.packages", reason, MAKE_IMAGE)


def refuse_without_python(policy: Policy, image: ImageFacts) -> None:
    """Wishes that only an image with Python can fulfil."""
    if policy.environment.has_packages or policy.environment.preload:
        wish = "packages" if policy.environment.has_packages else "preload"
        raise without_python(image, f"environment.{wish} of the policy has no effect")
    for mount in policy.filesystem.mounts:
        if is_inside(mount.target, PLACE):
            raise without_python(
                image, f"{PLACE} is where it gets one lent, and mount target {mount.target!r} is there"
            )


def without_python(image: ImageFacts, consequence: str) -> UsageError:
    return UsageError(
        f"image {image.reference!r} has no python3: {consequence}. Use an image that has it; `hood image "
        "build` makes one."
    )


def decide(
    policy: Policy,
    backend: str,
    facts: EngineFacts,
    *,
    user: str,
    has_own_kernel: bool,
    packages: PackageFolder | None,
    layers: tuple[str, ...],
    limits_sockets: bool,
    mounts_are_searched: bool,
) -> EnforcementReport:
    """`layers` are what the guest could put on programs besides."""
    entries = (
        *_isolation(user, has_own_kernel, layers),
        _mounts(has_own_kernel, mounts_are_searched),
        *enforcement.report_network(policy, _RELAY, _RELAY),
        *_packages(policy, packages),
        *_commands(policy, layers),
        *_limits(policy, facts, has_own_kernel, limits_sockets),
    )
    enforcement.refuse_partial(policy, entries, backend, "Remove it from the policy, or turn strict off.")
    return EnforcementReport(entries)


def _isolation(user: str, has_own_kernel: bool, layers: tuple[str, ...]) -> Iterator[Enforcement]:
    behind = ", ".join(layers) or "nothing behind it"
    kernel = "gVisor, a kernel of the sandbox's own; then " if has_own_kernel else ""
    yield Enforcement("filesystem", f"container with a read-only root ({behind} for each program)")
    yield Enforcement("filesystem.outputs", "file service in the container, asked by the host for these paths alone")
    yield Enforcement("processes", "process and IPC namespaces of the container")
    yield Enforcement("privileges", f"user {user} for programs; no capabilities; no_new_privs")
    yield Enforcement("system calls", f"{kernel}seccomp allow list of the container, and a second one for programs")
    yield Enforcement("environment", "empty environment; all descriptors closed")
    yield Enforcement("docker", "the engine, image and runtime that it names")
    yield Enforcement("image", "compared with the engine's, by its digest if the policy has one")


def _mounts(has_own_kernel: bool, are_searched: bool) -> Enforcement:
    shown = "bind mounts, read-only unless the policy says otherwise"
    if has_own_kernel:
        return Enforcement("filesystem.mounts", f"{shown}; gVisor connects to no socket in them")
    return mounts.sockets_report(shown, is_searched=are_searched)


def _packages(policy: Policy, packages: PackageFolder | None) -> Iterator[Enforcement]:
    if packages is not None:
        yield Enforcement("environment.packages", f"read-only mount of a folder with the digest {packages.digest}")
    elif policy.environment.has_packages:
        yield Enforcement("environment.packages", "folder of the image, which was made with them")


def _commands(policy: Policy, layers: tuple[str, ...]) -> Iterator[Enforcement]:
    is_written = any(mount.mode == "rw" for mount in policy.filesystem.mounts)
    gap = ", but a loader could run files that were written to writable mounts" if is_written else ""
    if entry := executables.report(policy, has_landlock="Landlock" in layers, gap=gap):
        yield entry


def _limits(policy: Policy, facts: EngineFacts, has_own_kernel: bool, limits_sockets: bool) -> Iterator[Enforcement]:
    cgroup = f"cgroup of the container (version {facts.cgroup_version})"
    shared = "for all runs of the sandbox together"
    yield Enforcement("resources.timeout", "clock in the container, which kills the run; then the host's")
    if has_own_kernel:
        yield Enforcement("resources.memory", f"RLIMIT_AS for a program, and memory {cgroup} {shared}")
        yield Enforcement("resources.processes", f"counted by the guest, and pids {cgroup}")
    else:
        yield _memory(facts, cgroup, shared, limits_sockets)
        yield Enforcement("resources.processes", f"pids {cgroup}, {shared}")
    yield Enforcement("resources.cpus", f"cpu quota, {cgroup}, {shared}")
    yield Enforcement("resources.disk", "tmpfs size, of each of /tmp, /var/tmp, /dev/shm and /run")
    if has_own_kernel:
        yield Enforcement("resources.inodes", "bounded by memory alone: gVisor does not count files", partial=True)
    else:
        yield Enforcement("resources.inodes", "tmpfs inode count")
    yield from enforcement.report_counted(policy)


def _memory(facts: EngineFacts, cgroup: str, shared: str, limits_sockets: bool) -> Enforcement:
    if "swap" not in facts.limits:
        return Enforcement("resources.memory", f"memory {cgroup}, without swap, {shared}", partial=True)
    if not limits_sockets:
        apart = "but not the buffers of internet sockets, which only root on the engine's machine can limit"
        return Enforcement("resources.memory", f"memory {cgroup}, swap included, {apart}, {shared}", partial=True)
    if not socket_buffers.are_counted_as_memory(facts):
        apart = "and a quarter as much for buffers of internet sockets"
        return Enforcement("resources.memory", f"memory {cgroup}, swap included, {apart}, {shared}")
    return Enforcement("resources.memory", f"memory {cgroup}, swap included, {shared}")
