"""Workers of the server's cluster, for operators, over HTTP."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from fumehood.server import events
from fumehood.server.api.models import Name, WorkerAnswer
from fumehood.server.api.problems import NotFoundError, PlainJson
from fumehood.server.api.routes import Caller, Server, scoped
from fumehood.server.identity.principals import Scope

router = APIRouter(tags=["workers"])


@router.get("/workers", response_model=list[WorkerAnswer], **scoped(Scope.OPERATE))
async def show_workers(server: Server) -> Response:
    """Those that have been heard lately; a server that has its sandboxes itself has none."""
    return PlainJson(server.fleet.describe() if server.fleet else [])


@router.post("/workers/{name}/drain", **scoped(Scope.OPERATE, 204))
async def drain_worker(server: Server, caller: Caller, name: Name) -> Response:
    """It opens no more sandboxes, and ends when those that it has are closed."""
    if server.fleet is None or not server.fleet.drain(name):
        raise NotFoundError("worker")
    await server.chains.own(caller).write(events.WorkerDrained(name))
    return Response(status_code=204)
