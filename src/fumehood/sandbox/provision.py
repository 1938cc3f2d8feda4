"""What a sandbox is given before it opens: its packages, and its place at the gateway."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

import anyio.from_thread
import anyio.to_thread

from fumehood.backends.interface import Backend, PackageFolder
from fumehood.concurrency.threads import run_whole
from fumehood.policy import Environment, Policy
from fumehood.sandbox.core import identifier
from fumehood.sandbox.egress import wait_for_gateway
from fumehood.tenant import Tenant

if TYPE_CHECKING:
    from fumehood.egress import SandboxEgress
    from fumehood.environments import EnvironmentLease, InstallRunner

MakeInstaller = Callable[[], "InstallRunner"]
Progress = Callable[[str], None]


async def install_packages(
    policy: Policy,
    backend: Backend,
    tenant: Tenant,
    stack: AsyncExitStack,
    make_installer: MakeInstaller,
    progress: Progress | None,
) -> PackageFolder | None:
    """Installs packages in a worker thread, which ends the installation when the task is cancelled."""
    section = policy.environment
    if not section.has_packages:
        return None
    if await backend.has_packages(policy, await anyio.to_thread.run_sync(_request, section), tenant):
        return None
    lease = await anyio.to_thread.run_sync(_use_environment, section, tenant, make_installer, progress)
    stack.callback(lease.close)
    return PackageFolder(str(lease.environment.folder), lease.environment.digest)


async def admit_to_gateway(
    policy: Policy, tenant: Tenant, stack: AsyncExitStack, *, learn: bool
) -> SandboxEgress | None:
    """Without network rules there is no gateway, no thread and no listener."""
    if not policy.network.allow and not learn:
        return None
    egress = await run_whole(partial(_admit, policy, tenant, learn=learn), lambda made: made.close())
    stack.push_async_callback(wait_for_gateway, egress.close)
    return egress


def _request(section: Environment) -> str:
    from fumehood.environments import EnvironmentSpec

    return EnvironmentSpec.of(section).request


def _use_environment(
    section: Environment, tenant: Tenant, make_installer: MakeInstaller, progress: Progress | None
) -> EnvironmentLease:
    from fumehood.environments import EnvironmentSpec, EnvironmentStore

    store = EnvironmentStore.open_for(tenant, make_installer())
    return store.use(EnvironmentSpec.of(section), progress, anyio.from_thread.check_cancelled)


def _admit(policy: Policy, tenant: Tenant, *, learn: bool) -> SandboxEgress:
    from fumehood.egress import shared_gateway

    return shared_gateway().admit(policy, identifier("sandbox"), learn=learn, tenant=tenant)
