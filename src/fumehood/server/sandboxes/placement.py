"""Where a sandbox is opened: in this process, or on a worker of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from fumehood.audit.trail import Trail
from fumehood.frozen import frozen
from fumehood.policy import Policy
from fumehood.remote.sandbox import RemoteSandbox
from fumehood.sandbox.async_sandbox import AsyncSandbox, open_named
from fumehood.sandbox.snapshots import PolicyUse
from fumehood.server.sandboxes.opening import Opening
from fumehood.tenant import Tenant

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
        opening, policy = request.opening, request.policy
        make = partial(
            AsyncSandbox,
            session=opening.session,
            keep_tmp=opening.keep_tmp,
            learn=opening.learn,
            gated=opening.gated,
            progress=opening.progress,
            audit=request.trail,
            tenant=request.tenant,
        )
        named = opening.named
        if named is None:
            return make(policy, snapshot=opening.snapshot)
        is_own = named.policy is PolicyUse.OWN and policy.digest == opening.policy.digest
        # A policy that this server makes stricter than it was kept is for this use alone.
        once = named.policy is not PolicyUse.FROM_NOW_ON
        given = None if is_own else policy
        return open_named(make, request.tenant, named.name, given, create=named.create, wait=named.wait, once=once)
