"""Who the server takes a caller for."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from fumehood.server.api.models import CallerAnswer
from fumehood.server.api.problems import PlainJson
from fumehood.server.api.routes import Caller, scoped

router = APIRouter(tags=["keys"])


@router.get("/whoami", response_model=CallerAnswer, **scoped(None))
async def show_caller(caller: Caller) -> Response:
    """The principal of the key or token, its tenant and its scopes."""
    scopes = sorted(scope.value for scope in caller.scopes)
    answer = {"principal": caller.name, "tenant": caller.tenant, "scopes": scopes, "expires_at": caller.expires}
    return PlainJson(answer)
