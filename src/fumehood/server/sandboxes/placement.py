"""Where a sandbox is opened: in this process, or on a worker of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from fumehood.audit.trail import Trail
from fumehood.errors import UsageError
from fumehood.frozen import frozen
from fumehood.policy import Policy
from fumehood.remote.memory import MemoryAccount
from fumehood.remote.sandbox import RemoteSandbox
from fumehood.sandbox.async_sandbox import AsyncSandbox, open_named
from fumehood.sandbox.workspace_state import PolicyUse
from fumehood.server.sandboxes.opening import Opening
from fumehood.tenant import Tenant

PlacedSandbox = AsyncSandbox | RemoteSandbox
Loss = Callable[[str], object]
"""Called once, with the reason, if the host that has a sandbox is lost."""


@frozen
class PlacementRequest:
    """A sandbox that was admitted, and is not open yet."""

    identifier: str
    principal: str
    opening: Opening
    policy: Policy
    tenant: Tenant
    trail: Trail
    lost: Loss
    memory: MemoryAccount
    """In which messages count that come from where the sandbox is."""


class Fork(Protocol):
    """A copy of an open sandbox, which holds what it begins with in the store until it is opened, or released."""

    def place(self, identifier: str, trail: Trail, lost: Loss) -> PlacedSandbox:
        """As `Placement.place`."""
        ...

    def release(self) -> None:
        """It is never opened."""
        ...


class Placement(Protocol):
    def place(self, request: PlacementRequest) -> PlacedSandbox:
        """Not open yet; which host has it may be decided when it is opened."""
        ...

    async def fork(self, box: PlacedSandbox, count: int) -> Sequence[Fork]:
        """Copies of a sandbox that was placed here."""
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
        given, once = given_policy(request), named.policy is not PolicyUse.FROM_NOW_ON
        return open_named(make, request.tenant, named.name, given, create=named.create, wait=named.wait, once=once)

    async def fork(self, box: PlacedSandbox, count: int) -> Sequence[Fork]:
        if not isinstance(box, AsyncSandbox):
            raise UsageError("this sandbox is not one of this process")
        return [LocalFork(copy) for copy in await box.fork(count)]


class LocalFork:
    def __init__(self, box: AsyncSandbox) -> None:
        self._box = box

    def place(self, identifier: str, trail: Trail, lost: Loss) -> PlacedSandbox:
        self._box.record_in(trail)
        return self._box

    def release(self) -> None:
        self._box.release()


def given_policy(request: PlacementRequest) -> Policy | None:
    """The policy to open a named sandbox with, if that is not its own.

    A policy that this server makes stricter than it was kept is for this use alone.
    """
    named, opening = request.opening.named, request.opening
    is_own = named is not None and named.policy is PolicyUse.OWN and request.policy.digest == opening.policy.digest
    return None if is_own else request.policy
