"""The sandbox behind a workspace: opened by its first use, closed once."""

from __future__ import annotations

import secrets
from contextlib import AsyncExitStack

import anyio
from pydantic_ai.workspaces import WorkspaceRef, WorkspaceUnavailableError

from fumehood.policy import Policy
from fumehood.sandbox.interface import AnySandbox, Opener

PROVIDER = "fumehood"


class WorkspaceSandbox:
    """`lost` is the reference to a sandbox that no longer exists."""

    def __init__(self, policy: Policy, sandboxes: Opener, *, lost: WorkspaceRef | None = None) -> None:
        self._policy, self._opener = policy, sandboxes
        self._turn = anyio.Lock()
        self._sandbox: AnySandbox | None = None
        self._lifetime = AsyncExitStack()
        self.ref = lost
        """Set by its first use; never changes."""
        self.is_destroyed = lost is not None

    async def open(self) -> AnySandbox:
        async with self._turn:
            if self.is_destroyed:
                raise gone(self.ref)
            if self._sandbox is None:
                self._sandbox = await self._lifetime.enter_async_context(
                    self._opener.sandbox(self._policy, keep_tmp=True)
                )
                self.ref = WorkspaceRef(provider=PROVIDER, id=secrets.token_hex(16))
            return self._sandbox

    async def destroy(self) -> None:
        self.is_destroyed = True
        with anyio.CancelScope(shield=True):
            async with self._turn:
                await self._lifetime.aclose()


def gone(ref: WorkspaceRef | None) -> WorkspaceUnavailableError:
    name = ref.id if ref else "that was never used"
    return WorkspaceUnavailableError(f"the sandbox {name} is closed or was never here; start with a new workspace")
