"""Lifecycle of the sandboxes of workspaces: a later run can continue in one, and all are closed at the end."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from pydantic_ai.workspaces import WorkspaceRef

from fumehood.integrations.policies import default_policy
from fumehood.integrations.pydantic_ai.sandbox import WorkspaceSandbox, gone
from fumehood.integrations.pydantic_ai.workspace import SandboxWorkspaceBackend
from fumehood.policy import AnyPolicy


class SandboxWorkspaces:
    """`async with SandboxWorkspaces(policy) as workspaces`: at the end every sandbox of them is closed.

    A reference is valid in this object only: another process has no such sandbox.
    """

    def __init__(self, policy: AnyPolicy | None = None) -> None:
        self._policy = default_policy(policy)
        self._sandboxes: list[WorkspaceSandbox] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        while self._sandboxes:
            await self._sandboxes.pop().destroy()

    def backend(self, ref: WorkspaceRef | None = None) -> SandboxWorkspaceBackend:
        """The backend of a new sandbox, which opens when it is first used, or of an earlier run's sandbox."""
        if ref is not None:
            found = next((sandbox for sandbox in self._sandboxes if sandbox.ref == ref), None)
            return SandboxWorkspaceBackend(found or WorkspaceSandbox(self._policy, lost=ref))
        sandbox = WorkspaceSandbox(self._policy)
        self._sandboxes.append(sandbox)
        return SandboxWorkspaceBackend(sandbox)

    async def destroy(self, ref: WorkspaceRef) -> None:
        """Close the sandbox now, with all that runs in it."""
        found = [sandbox for sandbox in self._sandboxes if sandbox.ref == ref]
        if not found:
            raise gone(ref)
        self._sandboxes.remove(found[0])
        await found[0].destroy()
