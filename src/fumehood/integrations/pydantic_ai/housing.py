"""Keeps the sandboxes behind workspaces, so that a later run can go on in one, and ends them all."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from pydantic_ai.workspaces import WorkspaceRef

from fumehood.integrations.policies import workshop_policy
from fumehood.integrations.pydantic_ai.environment import Environment, gone
from fumehood.integrations.pydantic_ai.workspace import SandboxWorkspaceBackend
from fumehood.policy import AnyPolicy


class SandboxWorkspaces:
    """`async with SandboxWorkspaces(policy) as workspaces`: at the end every sandbox of them is closed.

    A reference is worth something here alone: in another process there is no such sandbox any more.
    """

    def __init__(self, policy: AnyPolicy | None = None) -> None:
        self._policy = workshop_policy(policy)
        self._environments: list[Environment] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        while self._environments:
            await self._environments.pop().destroy()

    def backend(self, ref: WorkspaceRef | None = None) -> SandboxWorkspaceBackend:
        """Of a new sandbox, which opens when it is first used; or of the one that a run before has left."""
        if ref is not None:
            found = next((environment for environment in self._environments if environment.ref == ref), None)
            return SandboxWorkspaceBackend(found or Environment(self._policy, lost=ref))
        environment = Environment(self._policy)
        self._environments.append(environment)
        return SandboxWorkspaceBackend(environment)

    async def destroy(self, ref: WorkspaceRef) -> None:
        """Close the sandbox now, with all that runs in it."""
        found = [environment for environment in self._environments if environment.ref == ref]
        if not found:
            raise gone(ref)
        self._environments.remove(found[0])
        await found[0].destroy()
