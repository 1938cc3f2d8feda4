"""Whether the server lives and can serve, and its numbers."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import PlainTextResponse, Response

from fumehood.errors import FumehoodError
from fumehood.server.api.metrics import gauge, shipping_lines
from fumehood.server.api.problems import PlainJson, problem
from fumehood.server.api.routes import RunningServer, Server, scoped
from fumehood.server.identity.principals import Scope
from fumehood.server.storage.database import EVERYTHING, StorageError

_TEXT = "text/plain; version=0.0.4; charset=utf-8"
router = APIRouter(tags=["health"])


@router.get("/health/live")
async def is_live() -> Response:
    """The process answers."""
    return PlainJson({"status": "live"})


@router.get("/health/ready")
async def is_ready(server: Server) -> Response:
    """Sandboxes can be opened: database and cluster answer, the audit log can be written, the server does not end.

    Records that do not get to a sink are kept, and are no reason not to serve: `shipping` is then `behind`.
    """
    reason = await _reason(server)
    if reason:
        return problem(503, reason)
    behind = any(state.failures for state in server.shipping.states())
    return PlainJson({"status": "ready"} | ({"shipping": "behind"} if behind else {}))


async def _reason(server: RunningServer) -> str | None:
    if server.drain.is_set():
        return "the server is about to end"
    if server.fleet is not None and not server.fleet.is_connected:
        return "the connection to the cluster is lost"
    try:
        async with server.database.transaction(EVERYTHING) as transaction:
            await transaction.row("SELECT COUNT(*) AS n FROM instances")
    except StorageError:
        return "the database does not answer"
    try:
        await server.chains.look_for_room()
    except (FumehoodError, OSError):
        return "the audit log cannot be written"
    return None


@router.get("/metrics", response_class=PlainTextResponse, **scoped(Scope.OPERATE))
async def show_metrics(server: Server) -> Response:
    """For Prometheus, which sends an operator's key as a bearer token."""
    async with server.database.transaction(EVERYTHING) as transaction:
        rows = await transaction.rows(
            "SELECT tenant, COUNT(*) AS n FROM sandboxes WHERE ended IS NULL GROUP BY tenant ORDER BY tenant"
        )
    samples = [((("tenant", str(row["tenant"])),), float(row["n"] or 0)) for row in rows]
    draining = [((), float(server.drain.is_set()))]
    text = [
        *server.metrics.lines(),
        *gauge("fumehood_sandboxes_open", "Sandboxes that are open, on all servers of the database.", samples),
        *gauge("fumehood_draining", "Whether the server is about to end.", draining),
        *shipping_lines(server.shipping.states()),
    ]
    return Response("".join(text), media_type=_TEXT)
