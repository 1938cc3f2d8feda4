"""The `WorkspaceState` of a sandbox, made when it is needed.

Most sandboxes save nothing and begin with nothing: for them the store of snapshots is not even imported.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from fumehood.audit.trail import Trail
from fumehood.sandbox.files.artifacts import ArtifactTracker
from fumehood.sandbox.files.errors import Converse
from fumehood.tenant import Tenant

if TYPE_CHECKING:
    from fumehood.policy import Policy
    from fumehood.sandbox.workspace_state import KeptSandbox, WorkspaceState
    from fumehood.snapshots import Snapshot


class OptionalState:
    """Has a `WorkspaceState` if the sandbox begins with one, or once something is saved; else it does nothing."""

    def __init__(self, core: KeptSandbox, begin: Snapshot | str | None) -> None:
        self._core = core
        self._state = None if begin is None else _begin_with(core.tenant, begin)

    def use(self, state: WorkspaceState) -> None:
        """The sandbox, which is not open yet, begins with this state."""
        self._state = state

    def release(self) -> None:
        if self._state is not None:
            self._state.release()

    async def acquire(self, stack: AsyncExitStack, trail: Trail) -> None:
        if self._state is not None:
            await self._state.acquire(stack, self._core.policy, trail)

    async def restore(self, converse: Converse, artifacts: ArtifactTracker) -> None:
        if self._state is not None:
            await self._state.restore(self._core, converse, artifacts)

    @property
    def is_named(self) -> bool:
        """Whether it is saved when the sandbox is closed."""
        return self._state is not None and self._state.is_named

    async def save_at_end(self, converse: Converse) -> None:
        if self._state is not None and self._state.is_named:
            await self._state.save(self._core, converse)

    async def snapshot(self, name: str | None) -> Snapshot:
        return await self._made().snapshot(name, self._core, self._core.converse)

    async def save(self) -> Snapshot:
        return await self._made().save(self._core, self._core.converse)

    async def fork(self, count: int) -> list[WorkspaceState]:
        return await self._made().fork(count, self._core, self._core.converse)

    def _made(self) -> WorkspaceState:
        self._state = self._state or _begin_with(self._core.tenant, None)
        return self._state


def _begin_with(tenant: Tenant, begin: Snapshot | str | None) -> WorkspaceState:
    from fumehood.sandbox.workspace_state import WorkspaceState

    return WorkspaceState(tenant, begin)


def find_named(
    tenant: Tenant, name: str, policy: Policy | None, *, create: bool, wait: bool, once: bool
) -> tuple[Policy, WorkspaceState]:
    """The policy to open a named sandbox of this tenant's with, and its state; see `AsyncSandbox.open`."""
    from fumehood.sandbox.workspace_state import PolicyUse, WorkspaceState, policy_of

    use = PolicyUse.OWN if policy is None else PolicyUse.ONCE if once else PolicyUse.FROM_NOW_ON
    found = policy_of(tenant, name, policy, create=create)
    return found, WorkspaceState(tenant, name=name, wait=wait, create=create, use=use)
