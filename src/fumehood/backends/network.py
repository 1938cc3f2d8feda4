"""What every backend reports of the network. The gateway behind the listeners is the same for all of them. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from fumehood.backends.interface import Enforcement
from fumehood.errors import UnenforceableError
from fumehood.policy import Policy

ALONE = "network namespace with a loopback device only"
# Each is a descriptor in every run and in the gateway.
MOST_PORTS = 256


def refuse_too_many_ports(policy: Policy, backend: str) -> None:
    ports = {port for rule in policy.network.allow for port in rule.ports}
    if len(ports) > MOST_PORTS:
        raise UnenforceableError(
            "network.allow",
            backend=backend,
            reason=f"the rules name {len(ports)} ports, and a sandbox can listen on {MOST_PORTS}",
            remedy="Name fewer ports.",
        )


def report(policy: Policy, listeners: str) -> Iterator[Enforcement]:
    """`listeners` is how what goes out reaches the gateway."""
    yield Enforcement("network", ALONE)
    if policy.network.allow:
        yield Enforcement("network.allow", f"egress gateway of the host, the only way out, by {listeners}")
    if policy.secrets:
        yield Enforcement("secrets", "put into requests by the egress gateway; their values never enter the sandbox")
