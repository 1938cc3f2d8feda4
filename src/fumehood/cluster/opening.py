"""What a server asks of a worker: a sandbox for a tenant, with all that it is given; secrets travel in nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any, cast

from fumehood.cluster.tenant_meter import LIMITS, WorkerMeter
from fumehood.errors import UnenforceableError
from fumehood.frozen import frozen
from fumehood.guest.contract.frames import FrameError, Header
from fumehood.policy import Docker, Policy
from fumehood.policy.secret import GivenSecrets, SecretSource
from fumehood.remote.policies import pack_policy, unpack_policy
from fumehood.tenant import Tenant

_KNOWN = frozenset({"name", "secrets", "engine", "private_networks", "cpu_weight", "memory_bytes"}) | frozenset(
    {"session", "keep_tmp", "learn", "gated", *LIMITS}
)


@frozen
class WorkerOpening:
    sandbox: str
    principal: str
    policy: Policy
    tenant: Tenant
    epoch: int
    session: bool
    keep_tmp: bool
    learn: bool
    gated: bool
    limits: Mapping[str, float]
    """The tenant's, for the worker's own meter."""


def pack_opening(
    sandbox: str, principal: str, policy: Policy, tenant: Tenant, limits: Mapping[str, float], **options: bool
) -> Header:
    return {
        "sandbox": sandbox,
        "principal": principal,
        "policy": pack_policy(policy),
        "tenant": {
            "name": tenant.name,
            "secrets": _secrets(policy, tenant.secrets),
            "engine": None if tenant.docker is None else tenant.docker.host,
            "private_networks": tenant.private_networks,
            "cpu_weight": tenant.cpu_weight,
            "memory_bytes": tenant.memory_bytes,
        },
        "limits": dict(limits),
        "options": options,
    }


def _secrets(policy: Policy, source: SecretSource) -> dict[str, str]:
    """Of the tenant's secrets, those that this policy names."""
    names = {value.from_env for value in (*policy.secrets, *policy.filters.canaries) if value.from_env is not None}
    found = {name: source.variable(name) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def _check_known(names: Set[str]) -> None:
    """A server that is newer may ask for a restriction of which this version knows nothing: it is not left out."""
    if unknown := sorted(names - _KNOWN):
        raise UnenforceableError(
            ", ".join(unknown)[:200],
            backend="of this worker",
            reason="the server is newer than the worker and asks for what it does not know",
            remedy="Upgrade Fumehood on this host.",
        )


def unpack_opening(header: Header, folder: Path, meter: WorkerMeter) -> WorkerOpening:
    """`folder` is that of the tenant at this worker. UnenforceableError for what only a newer version knows."""
    try:
        given = cast("dict[str, Any]", header["tenant"])
        options = cast("dict[str, bool]", header["options"])
        _check_known({*given, *options, *cast("dict[str, float]", header["limits"])})
        tenant = Tenant(
            str(given["name"]),
            folder,
            GivenSecrets({str(name): str(value) for name, value in dict(given["secrets"]).items()}),
            docker=None if given["engine"] is None else Docker(host=str(given["engine"])),
            private_networks=bool(given["private_networks"]),
            cpu_weight=int(given["cpu_weight"]),
            memory_bytes=None if given["memory_bytes"] is None else int(given["memory_bytes"]),
            meter=meter,
            egress=meter,
        )
        return WorkerOpening(
            str(header["sandbox"]),
            str(header["principal"]),
            unpack_policy(header["policy"]),
            tenant,
            int(header["epoch"]),
            session=bool(options.get("session")),
            keep_tmp=bool(options.get("keep_tmp")),
            learn=bool(options.get("learn")),
            gated=bool(options.get("gated")),
            limits={name: float(cast("dict[str, float]", header["limits"])[name]) for name in LIMITS},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FrameError(f"an opening that is not complete: {error}") from error
