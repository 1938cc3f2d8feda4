"""The entry point of the native backend: opens sandboxes in warm cells and starts runs in them."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from fumehood.backends.interface import EnforcementReport, PackageFolder
from fumehood.backends.mounts import identity, mount_identities, refuse_sockets_aside
from fumehood.backends.native import enforcement
from fumehood.backends.native.cell_spec import build_cell_spec
from fumehood.backends.native.cells import CellPool, PoolSizes
from fumehood.backends.native.host_facts import HostFacts, detect
from fumehood.backends.native.prestart import Prestart
from fumehood.errors import FumehoodError
from fumehood.guest.contract.cell_spec import CellSpec
from fumehood.policy import Policy
from fumehood.tenant import LOCAL, Tenant

if TYPE_CHECKING:  # imported when a sandbox is opened: what starts a cell is needed before
    from fumehood.backends.runs.sandbox import GuestSandbox

_MOST_REPORTS = 256


class NativeBackend:
    """Shares its cells among all sandboxes that it opens."""

    name = enforcement.BACKEND

    def __init__(self, facts: HostFacts | None = None, sizes: PoolSizes | None = None) -> None:
        self._facts = facts or detect()
        self._pool = CellPool(sizes)
        self._reports: dict[tuple[str, PackageFolder | None, bool], EnforcementReport] = {}
        self._early: threading.Thread | None = None

    def use_prestart(self, prestart: Prestart) -> None:
        """The next cell starts with its interpreter."""
        self._pool.prestart = prestart

    def start_cell_early(self, policy: Policy) -> None:
        """In a thread, while the caller imports what opens a sandbox; `open` waits for the cell.

        Only where the cell depends on the policy alone. What fails here is tried again by `open`, and raised there.
        The cell is for a command with one run, and keeps none on standby after that.
        """
        if policy.environment.has_packages or policy.network.allow or policy.filesystem.mounts:
            return
        self._early = threading.Thread(target=self._start_cell, args=(policy,), name="fumehood-early-cell", daemon=True)
        self._early.start()

    def _start_cell(self, policy: Policy) -> None:
        with suppress(FumehoodError, OSError):
            self._decide(policy)
            key, build_spec = self._cell_of(policy, None, ())
            self._pool.acquire(key, self._facts, lambda: {**build_spec(), "standbys": 0})

    def _cell_of(
        self, policy: Policy, packages: PackageFolder | None, ports: tuple[int, ...], tenant: Tenant = LOCAL
    ) -> tuple[str, Callable[[], CellSpec]]:
        """Sandboxes with the same key share a cell; and what makes one."""
        whose = f"{tenant.name} {tenant.cpu_weight} {tenant.memory_bytes}"
        key = " ".join((whose, policy.digest, _identity(packages), f"ports {ports}", *mount_identities(policy)))
        return key, partial(build_cell_spec, policy, self._facts, packages, ports)

    def check(self, policy: Policy, tenant: Tenant = LOCAL) -> None:
        self._decide(policy)
        enforcement.refuse_tenant(tenant, self._facts)

    def _decide(
        self, policy: Policy, packages: PackageFolder | None = None, *, mounts_are_searched: bool = True
    ) -> EnforcementReport:
        """Once for each digest, which covers all of a policy that is enforced; the facts are those of the process."""
        case = policy.digest, packages, mounts_are_searched
        if case not in self._reports:
            if len(self._reports) >= _MOST_REPORTS:
                self._reports.clear()
            self._reports[case] = enforcement.decide(
                policy, self._facts, packages, mounts_are_searched=mounts_are_searched
            )
        return self._reports[case]

    async def has_packages(self, policy: Policy, request: str, tenant: Tenant = LOCAL) -> bool:
        return False

    @asynccontextmanager
    async def open(
        self, policy: Policy, packages: PackageFolder | None, ports: tuple[int, ...] = (), tenant: Tenant = LOCAL
    ) -> AsyncIterator[GuestSandbox]:
        from fumehood.backends.native.link import CellLink
        from fumehood.backends.runs.sandbox import GuestSandbox

        are_searched = await refuse_sockets_aside(policy, enforcement.BACKEND)
        report = self._decide(policy, packages, mounts_are_searched=are_searched)
        enforcement.refuse_tenant(tenant, self._facts)
        link = CellLink(self._pool, self._facts, *self._cell_of(policy, packages, ports, tenant), tenant)
        await link.open()
        sandbox = GuestSandbox(link, policy, report, shares_listeners=policy.network.shares_loopback)
        try:
            yield sandbox
        finally:
            sandbox.close()

    def close(self) -> None:
        if self._early:
            self._early.join()
        self._pool.close()


def _identity(packages: PackageFolder | None) -> str:
    return f"{packages.digest} {identity(packages.path)}" if packages else "no packages"
