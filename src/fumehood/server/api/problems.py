"""Errors as `application/problem+json`: what failed, what to do, and numbers for programs."""

from __future__ import annotations

import math
import time

from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse

from fumehood.errors import DeniedError, FumehoodError, UsageError
from fumehood.server.identity.principals import ForbiddenError, NotAuthenticatedError
from fumehood.server.sandboxes.errors import DrainingError, EndedError, NoSuchSandboxError, SandboxClosedError
from fumehood.server.storage.database import StorageError
from fumehood.server.tenants.quotas import QuotaExceededError

_MEDIA_TYPE = "application/problem+json"
_STATUSES: tuple[tuple[type[Exception], int], ...] = (
    (NotAuthenticatedError, 401),
    (ForbiddenError, 403),
    (NoSuchSandboxError, 404),
    (EndedError, 410),
    (SandboxClosedError, 410),
    (QuotaExceededError, 429),
    (DrainingError, 503),
    (StorageError, 503),
    (DeniedError, 403),
    (UsageError, 422),
)
_TITLES = {
    401: "not authenticated",
    403: "not allowed",
    404: "not found",
    410: "ended",
    422: "not valid",
    429: "quota used up",
    500: "the server failed",
    503: "not available",
}


async def answer_problem(request: HTTPConnection, error: Exception) -> JSONResponse:
    status = next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)
    known = isinstance(error, FumehoodError) and status != 500
    detail = str(error) if known else "the server failed; its own log has the reason"
    if isinstance(error, StorageError):
        detail = "the server cannot reach its database; try again"
    content: dict[str, object] = {"title": _TITLES[status], "status": status, "detail": detail}
    headers: dict[str, str] = {}
    match error:
        case QuotaExceededError():
            content |= {"quota": error.quota.value, "limit": error.limit.value, "used": error.used}
            content |= {"set_by": error.limit.author, "resets_at": error.resets}
            headers["Retry-After"] = str(max(1, math.ceil((error.resets or time.time() + 5) - time.time())))
        case EndedError():
            content |= {"cause": error.record.cause, "ended_at": error.record.ended}
        case NotAuthenticatedError():
            headers["WWW-Authenticate"] = "Bearer"
        case _:
            pass
    return JSONResponse(content, status, headers, _MEDIA_TYPE)
