"""How a route is declared: with the scope that it needs, which is in the OpenAPI document as `x-scope`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends, Request

from fumehood.server.api.problems import MEDIA_TYPE
from fumehood.server.identity.principals import ForbiddenError, NotAuthenticatedError, Principal, Scope

if TYPE_CHECKING:
    from fumehood.server.lifetime import ServerState as RunningServer
else:
    RunningServer = object

_ERRORS = (401, 403, 404, 422, 429, 503)
_PROBLEM = {
    "type": "object",
    "required": ["title", "status", "detail"],
    "properties": {"title": {"type": "string"}, "status": {"type": "integer"}, "detail": {"type": "string"}},
}


def scoped(scope: Scope | None, status: int = 200, **document: object) -> dict[str, Any]:
    """Options of a route. With None every key of the tenant may use it. `document` is added to its description."""
    answers = {code: {"description": "", "content": {MEDIA_TYPE: {"schema": _PROBLEM}}} for code in _ERRORS}
    return {
        "status_code": status,
        "dependencies": [Depends(_checked(scope))],
        "responses": answers,
        "openapi_extra": {"x-scope": scope.value if scope else None, **document},
    }


def _checked(scope: Scope | None) -> Any:
    async def check(request: Request) -> None:
        principal = await principal_of(request)
        if scope is not None and not principal.may(scope):
            raise ForbiddenError(scope)

    return check


async def principal_of(request: Request) -> Principal:
    principal = getattr(request.state, "principal", None)
    if not isinstance(principal, Principal):
        raise NotAuthenticatedError
    return principal


async def server_of(request: Request) -> Any:
    return request.app.state.server


Caller = Annotated[Principal, Depends(principal_of)]
Server = Annotated[RunningServer, Depends(server_of)]
