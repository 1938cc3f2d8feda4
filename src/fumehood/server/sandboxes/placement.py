"""Where a sandbox is opened: in this process, or on a worker of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from fumehood.audit.trail import Trail
from fumehood.frozen import frozen
from fumehood.policy import Policy
from fumehood.remote.sandbox import RemoteSandbox
from fumehood.sandbox.async_sandbox import AsyncSandbox
from fumehood.tenant import Tenant

if TYPE_CHECKING:
    from fumehood.server.sandboxes.registry import Opening

PlacedSandbox = AsyncSandbox | RemoteSandbox


@frozen
class PlacementRequest:
    """A sandbox that was admitted, and is not open yet."""

    identifier: str
    principal: str
    opening: Opening
    policy: Policy
    tenant: Tenant
    trail: Trail
    lost: Callable[[str], object]
    """Called once, with the reason, if the host that has the sandbox is lost."""


class Placement(Protocol):
    def place(self, request: PlacementRequest) -> PlacedSandbox:
        """Not open yet; which host has it may be decided when it is opened."""
        ...


class LocalPlacement:
    """All sandboxes are this process's own."""

    def place(self, request: PlacementRequest) -> PlacedSandbox:
        opening = request.opening
        return AsyncSandbox(
            request.policy,
            session=opening.session,
            keep_tmp=opening.keep_tmp,
            learn=opening.learn,
            snapshot=opening.snapshot,
            progress=opening.progress,
            audit=request.trail,
            tenant=request.tenant,
        )
