"""Tenants: whose a sandbox is, and what it is given by the process that opens it.

A policy says what is allowed, and its digest covers that. Who runs it, with which secrets, on which container engine
and in which folders is said here, by the process that serves several tenants: nothing of it can be in a document that a
tenant has written. `LOCAL` is the user of this process, who has what the process has.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Protocol

from fumehood.errors import DeniedError, UnenforceableError, UsageError
from fumehood.frozen import frozen
from fumehood.policy import Docker, Policy
from fumehood.policy.secret import PROCESS_SECRETS, GivenSecrets, SecretSource
from fumehood.results import RunResult

USUAL_CPU_WEIGHT = 100
_CPU_WEIGHTS = range(1, 10_001)
_LEAST_MEMORY_BYTES = 32 * 2**20
# A single folder's name, and a label's value: in cgroups, in containers and on disk.
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


class RunMeter(Protocol):
    """Counts the runs of a tenant. Calls come from the event loops of its sandboxes."""

    def begin(self) -> None:
        """Before a run is recorded, let alone started; raises to refuse it."""
        ...

    def end(self, run_id: str, result: RunResult | None, seconds: float) -> None:
        """Once for each that began, with how long it took; without a result if it was left before its end."""
        ...


class DiskLimits(Protocol):
    """How many named sandboxes and snapshots a tenant may keep, how large together, and for how long.

    The methods raise when there would be more.
    """

    @property
    def size_bytes(self) -> int: ...

    @property
    def days(self) -> int:
        """What was not used for so long is removed; 0 is never."""
        ...

    def check_sandboxes(self, count: int) -> None: ...

    def check_snapshots(self, count: int) -> None: ...

    def check_size(self, size_bytes: int) -> None: ...


class EgressMeter(Protocol):
    """Counts the bytes that a tenant's sandboxes exchange with the outside. Calls come from the gateway's thread."""

    def left_bytes(self) -> int:
        """How many may still move; none if it is not above 0."""
        ...

    def count(self, moved: int) -> None: ...

    def refusal(self) -> str:
        """Why there are none left, for those whose connection is refused."""
        ...


@frozen
class Tenant:
    """Two tenants share no cell, no cgroup, no container, no folder and no secret, whatever their policies say.

    `Tenant("acme", Path("/var/lib/hood/acme"))` has no secrets, mounts nothing and has no container engine.
    """

    name: str
    folder: Path | None
    """The tenant's alone: environments, named sandboxes and snapshots, and the audit log unless another is given."""
    secrets: SecretSource = field(default_factory=GivenSecrets)
    docker: Docker | None = None
    """The engine of its containers, with `host`; without one it has no containers."""
    mounts: frozenset[str] = frozenset()
    """The folders of the host that its policies may mount, each as a whole, in places that it cannot write to."""
    variables: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Where its packages come from: what uv is configured with, such as UV_DEFAULT_INDEX."""
    private_networks: bool = False
    """Whether its policies may open addresses that are not on the public internet, such as those of this host."""
    cpu_weight: int = USUAL_CPU_WEIGHT
    """Its share of the processors when there are not enough for all tenants, from 1 to 10000."""
    memory_bytes: int | None = None
    """The most that all its runs may use together."""
    meter: RunMeter | None = None
    disk: DiskLimits | None = None
    """Of what it keeps in `folder`; without them those of this process."""
    egress: EgressMeter | None = None

    def __post_init__(self) -> None:
        if _NAME.fullmatch(self.name) is None:
            raise UsageError(f"{self.name!r} cannot be the name of a tenant: write 1 to 63 of a-z, 0-9 and '-'")
        if self.folder is None or not self.folder.is_absolute():
            raise UsageError(f"the folder {self.folder} of tenant {self.name} must be an absolute path")
        if self.docker is not None and self.docker.host is None:
            raise UsageError(f"the engine of tenant {self.name} needs docker.host, its address")
        if self.memory_bytes is not None and self.memory_bytes < _LEAST_MEMORY_BYTES:
            raise UsageError(f"the memory_bytes {self.memory_bytes} of tenant {self.name} must be 32 MiB or more")
        if self.cpu_weight not in _CPU_WEIGHTS:
            raise UsageError(f"the cpu_weight {self.cpu_weight} of tenant {self.name} must be from 1 to 10000")

    @property
    def is_limited(self) -> bool:
        """Whether its cgroup has limits of its own."""
        return self.memory_bytes is not None or self.cpu_weight != USUAL_CPU_WEIGHT

    def check(self, policy: Policy) -> None:
        """DeniedError for a policy that names what is the host's and not this tenant's."""
        for key, remedy in self._names_of_host(policy):
            raise DeniedError(f"{key}: a policy of tenant {self.name} cannot name what is the host's; {remedy}")

    def _names_of_host(self, policy: Policy) -> Iterator[tuple[str, str]]:
        for value in (*policy.secrets, *policy.filters.canaries):
            if value.from_file is not None:
                yield f"{value.kind} {value.name}: from_file", "give the value to the tenant, and use from_env"
        if policy.environment.requirements is not None:
            yield "environment.requirements", "list the packages in environment.packages"
        if policy.environment.index is not None:
            yield "environment.index", "remove it: the tenant has an index of its own, or the usual one"
        if not self.private_networks and any(rule.private for rule in policy.network.allow):
            yield "network.allow: private", "remove it, or give the tenant private_networks"
        for mount in policy.filesystem.mounts:
            if mount.source not in self.mounts:
                yield f"filesystem.mounts: {mount.source}", "mount a folder that was given to the tenant"
        for key in ("host", "tls_ca", "tls_cert", "tls_key"):
            if getattr(policy.docker, key) is not None:
                yield f"docker.{key}", "remove it: the tenant has an engine of its own, or none"

    def installer(self) -> Tenant:
        """The same tenant, for the sandbox that installs its packages: the policy of that is this package's own."""
        return _Trusted(
            self.name,
            self.folder,
            PROCESS_SECRETS,
            cpu_weight=self.cpu_weight,
            memory_bytes=self.memory_bytes,
            egress=self.egress,
        )

    def engine(self, policy: Policy) -> Docker:
        """The section of a policy whose `host` and `tls_*` lead to the engine for it."""
        if self.docker is None:
            raise UnenforceableError(
                "backend",
                backend=policy.backend,
                reason=f"tenant {self.name} has no container engine",
                remedy="Use the backend native, or give the tenant an engine.",
            )
        return self.docker


class _Trusted(Tenant):
    """One whose policies are this process's own: they may name what it has, its variables, files and engine."""

    __slots__ = ()

    def __post_init__(self) -> None:
        pass

    def check(self, policy: Policy) -> None:
        pass

    def engine(self, policy: Policy) -> Docker:
        return policy.docker


LOCAL: Tenant = _Trusted("", None, PROCESS_SECRETS, variables=os.environ)
