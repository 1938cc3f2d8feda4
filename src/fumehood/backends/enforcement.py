"""What every backend refuses and reports alike. Pure.

A control without a mechanism is an error, never ignored. The gateway behind the listeners is the same for all backends.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from fumehood.backends import executables
from fumehood.backends.interface import Enforcement, PackageFolder
from fumehood.errors import UnenforceableError
from fumehood.host.interpreter import own_interpreter
from fumehood.policy import Policy, controls

ALONE = "network namespace with a loopback device only"
# Each is a descriptor in every run and in the gateway.
MOST_PORTS = 256


def refuse_unknown(policy: Policy, enforced: Collection[str], backend: str) -> None:
    """Raises for the first control that is neither in `enforced` nor below one that is."""
    for control in controls(policy):
        if not any(control == known or control.startswith(known + ".") for known in enforced):
            raise UnenforceableError(
                control,
                backend=backend,
                reason="this backend has no mechanism for it",
                remedy="Remove it from the policy.",
            )


def refuse_too_many_ports(policy: Policy, backend: str) -> None:
    ports = {port for rule in policy.network.allow for port in rule.ports}
    if len(ports) > MOST_PORTS:
        raise UnenforceableError(
            "network.allow",
            backend=backend,
            reason=f"the rules name {len(ports)} ports, and a sandbox can listen on {MOST_PORTS}",
            remedy="Name fewer ports.",
        )


def refuse_partial(policy: Policy, entries: Iterable[Enforcement], backend: str, remedy: str) -> None:
    """Raises under a strict policy for the first control that is enforced in part."""
    for entry in entries:
        if entry.partial and policy.strict:
            raise UnenforceableError(
                entry.control,
                backend=backend,
                reason=f"strict is on and here it is only {entry.mechanism}",
                remedy=executables.REMEDY if entry.control == "commands" else remedy,
            )


def refuse_without_landlock(policy: Policy, backend: str, *, has_landlock: bool, where: str, remedy: str) -> None:
    """Only it can say which files may be executed."""
    if policy.commands.enforce == "kernel" and not has_landlock:
        raise UnenforceableError("commands.enforce", backend=backend, reason=f"{where} has no Landlock", remedy=remedy)


def refuse_other_python(
    packages: PackageFolder | None, found: tuple[int, ...], image: str, backend: str, remedy: str
) -> None:
    """Packages that are lent to an image are installed for this process's Python."""
    own = own_interpreter().version
    if packages is not None and found != own:
        wanted, has = (".".join(map(str, version)) for version in (own, found))
        raise UnenforceableError(
            "environment.packages",
            backend=backend,
            reason=f"they are installed for Python {wanted} and image {image!r} has {has}",
            remedy=remedy,
        )


def report_network(policy: Policy, listeners: str, connections: str) -> Iterator[Enforcement]:
    """`listeners` is how what goes out reaches the gateway, `connections` how what comes in reaches a program."""
    yield Enforcement("network", ALONE)
    if policy.network.allow:
        yield Enforcement("network.allow", f"egress gateway of the host, the only way out, by {listeners}")
    if policy.network.publish:
        yield Enforcement("network.publish", f"a listener on the host's loopback that wants a token, by {connections}")
    if policy.network.shares_loopback:
        yield Enforcement("network.shared_loopback", "one network namespace for the runs of a sandbox")
    if policy.secrets:
        yield Enforcement("secrets", "put into requests by the egress gateway; their values never enter the sandbox")


def report_counted(policy: Policy) -> Iterator[Enforcement]:
    """Limits that the host counts, and those that the kernel has for each process."""
    yield Enforcement("resources.output", "counted by the host, which kills the run")
    yield Enforcement("resources.open_files", "RLIMIT_NOFILE")
    yield Enforcement("resources.artifacts", "counted by the host")
    yield Enforcement("resources.artifacts_size", "counted by the host before anything is read")
    if policy.resources.cpu_time is not None:
        yield Enforcement("resources.cpu_time", "RLIMIT_CPU, for each process", partial=True)
