"""Placement on the workers of a cluster."""

from __future__ import annotations

from dataclasses import replace

from fumehood.audit.trail import Trail
from fumehood.cluster.opening import pack_opening
from fumehood.errors import UsageError
from fumehood.sandbox.saved_state import find_named
from fumehood.sandbox.workspace_state import PolicyUse, WorkspaceState
from fumehood.server.fleet.choice import SandboxNeeds
from fumehood.server.fleet.fleet import Fleet
from fumehood.server.fleet.placed_connection import PlacedConnection
from fumehood.server.fleet.worker_sandbox import WorkerSandbox
from fumehood.server.sandboxes.placement import Fork, Loss, PlacedSandbox, PlacementRequest, given_policy
from fumehood.server.tenants.meter import Meters


class FleetPlacement:
    def __init__(self, fleet: Fleet, meters: Meters) -> None:
        self._fleet, self._meters = fleet, meters

    def place(self, request: PlacementRequest) -> PlacedSandbox:
        opening, tenant = request.opening, request.tenant
        if (named := opening.named) is not None:
            once = named.policy is not PolicyUse.FROM_NOW_ON
            policy, state = find_named(
                tenant, named.name, given_policy(request), create=named.create, wait=named.wait, once=once
            )
            return self.place_with(replace(request, policy=policy), state)
        return self.place_with(request, None if opening.snapshot is None else WorkspaceState(tenant, opening.snapshot))

    def place_with(self, request: PlacementRequest, state: WorkspaceState | None) -> WorkerSandbox:
        opening, tenant = request.opening, request.tenant
        packed = pack_opening(
            request.identifier,
            request.principal,
            request.policy,
            tenant,
            self._meters.limits_for_worker(tenant.name),
            session=opening.session,
            keep_tmp=opening.keep_tmp,
            learn=opening.learn,
            gated=opening.gated,
        )
        needs = SandboxNeeds(tenant.name, request.policy.digest, request.policy.backend)
        connection = PlacedConnection(self._fleet, needs, packed, request.lost, request.memory)
        return WorkerSandbox(request, connection, state)

    async def fork(self, box: PlacedSandbox, count: int) -> list[Fork]:
        if not isinstance(box, WorkerSandbox):
            raise UsageError("this sandbox is not on a worker of the cluster")
        request = replace(box.request, policy=box.policy)
        return [WorkerFork(self, request, state) for state in await box.fork_states(count)]


class WorkerFork:
    """A copy of a sandbox on a worker; which worker gets it is decided when it is opened."""

    def __init__(self, placement: FleetPlacement, request: PlacementRequest, state: WorkspaceState) -> None:
        self._placement, self._request, self._state = placement, request, state

    def place(self, identifier: str, trail: Trail, lost: Loss) -> PlacedSandbox:
        own = replace(self._request, identifier=identifier, trail=trail, lost=lost)
        return self._placement.place_with(own, self._state)

    def release(self) -> None:
        self._state.release()
