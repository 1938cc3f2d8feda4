"""Placement on the workers of a cluster."""

from __future__ import annotations

from fumehood.cluster.opening import pack_opening
from fumehood.errors import UsageError
from fumehood.remote.sandbox import RemoteSandbox
from fumehood.server.fleet.choice import SandboxNeeds
from fumehood.server.fleet.fleet import Fleet
from fumehood.server.fleet.placed_connection import PlacedConnection
from fumehood.server.sandboxes.placement import PlacedSandbox, PlacementRequest
from fumehood.server.tenants.meter import Meters


class FleetPlacement:
    def __init__(self, fleet: Fleet, meters: Meters) -> None:
        self._fleet, self._meters = fleet, meters

    def place(self, request: PlacementRequest) -> PlacedSandbox:
        opening, tenant = request.opening, request.tenant
        if opening.snapshot is not None or opening.named is not None:
            raise UsageError(
                "snapshots and named sandboxes are kept by the host that made them; a cluster opens sandboxes without"
            )
        packed = pack_opening(
            request.identifier,
            request.principal,
            request.policy,
            tenant,
            self._meters.limits_for_worker(tenant.name),
            session=opening.session,
            keep_tmp=opening.keep_tmp,
            learn=opening.learn,
        )
        needs = SandboxNeeds(tenant.name, request.policy.digest, request.policy.backend)
        connection = PlacedConnection(self._fleet, needs, packed, request.lost)
        return RemoteSandbox(connection, keep_tmp=opening.keep_tmp)
