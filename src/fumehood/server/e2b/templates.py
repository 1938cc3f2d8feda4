"""Which policy a template stands for, and how much of it a request for a network leaves: never more than all."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from fumehood.errors import DeniedError
from fumehood.frozen import frozen
from fumehood.policy import Policy
from fumehood.server.e2b.errors import MissingError, NotHereError
from fumehood.server.e2b.fields import field, words
from fumehood.server.storage.database import Database
from fumehood.server.tenants.catalogue import find_policy, narrow

BASE = "base"
BASE_POLICY = """\
# For programs with E2B's SDKs that name no template: files go in and out, nothing else does.
version: 1
filesystem: {outputs: ['**', '/tmp/**']}
resources: {timeout: 24h, memory: 512M, cpus: 2, processes: 256, disk: 512M, open_files: 1024, output: 1G}
"""
_USUAL = frozenset({BASE, "code-interpreter-v1"})
"""What the SDKs name when their caller names none."""
_DEFAULT = "default"
_EVERYWHERE = frozenset({"0.0.0.0/0", "::/0"})
_NOT_HERE = {
    "rules": "rules that change requests are `secrets` and `network.allow` of the policy",
    "egressProxy": "the gateway connects by itself",
    "dnsServers": "the gateway resolves names",
    "httpsPorts": "ports of a sandbox are reached over plain HTTP inside",
    "maskRequestHost": "servers inside see the host that was asked for",
}


@frozen
class Template:
    name: str
    policy: Policy


@cache
def built_in_policy() -> Policy:
    """For a tenant whose catalogue has none for the usual templates."""
    return Policy.loads(BASE_POLICY, BASE, "/nonexistent")


async def find_template(database: Database, tenant: str, template: str) -> Template:
    """A template is the tenant's policy of that name; a tag behind a colon means nothing here.

    The usual ones are `base`, else `default`, else a built-in policy.
    """
    name = template.partition(":")[0]
    for wanted in dict.fromkeys((name, BASE, _DEFAULT)) if name in _USUAL else (name,):
        if found := await find_policy(database, tenant, wanted):
            return Template(wanted, found)
    if name in _USUAL:
        return Template(BASE, built_in_policy())
    raise MissingError(f"there is no policy {name!r} in the tenant's catalogue for the template of that name")


def narrowed(policy: Policy, network: Mapping[str, Any], *, internet: bool) -> Policy:
    """The policy with the network that is asked for. `internet` alone is no wish: the SDKs say so by default."""
    for key, why in _NOT_HERE.items():
        if network.get(key):
            raise NotHereError(f"network.{key} is not there: {why}")
    allowed, denied = words(network, "allowOut"), words(network, "denyOut")
    if not field(network, "allow_internet_access", bool, internet):
        return narrow(policy, {}, network=False)
    if not allowed and not denied:
        return policy
    if set(denied) - _EVERYWHERE:
        raise NotHereError("network.denyOut can be everything (0.0.0.0/0), with the exceptions in allowOut")
    if denied and not allowed:
        return narrow(policy, {}, network=False)
    return policy if set(allowed) & _EVERYWHERE else _with_hosts(policy, allowed)


def _with_hosts(policy: Policy, hosts: list[str]) -> Policy:
    """Only hosts that have rules of their own: to take away a rule from under a wider one would widen it."""
    own = {rule.host for rule in policy.network.allow if not set("*/") & set(rule.host)}
    for host in hosts:
        if host not in own:
            raise DeniedError(f"{host} is not a host that network.allow of the policy names; a sandbox can have less")
    kept = tuple(rule for rule in policy.network.allow if rule.host in hosts)
    return policy.model_copy(update={"network": policy.network.model_copy(update={"allow": kept})})
