"""Errors as `application/problem+json`: what failed, what to do, and numbers for programs."""

from __future__ import annotations

import errno
import http
import json
import logging
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, cast

from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse

from fumehood.backends.docker.errors import EngineError
from fumehood.errors import (
    AuditError,
    DeniedError,
    FumehoodError,
    PolicyError,
    QuotaError,
    SandboxBusyError,
    UsageError,
)
from fumehood.server.connections import TooManyConnectionsError
from fumehood.server.identity.principals import ForbiddenError, NotAuthenticatedError
from fumehood.server.sandboxes.errors import (
    DrainingError,
    ElsewhereError,
    EndedError,
    NoCapacityError,
    NoSuchSandboxError,
    SandboxClosedError,
)
from fumehood.server.storage.database import StorageError
from fumehood.server.tenants.catalogue import FailedTestsError
from fumehood.server.tenants.meter import DatabaseAwayError
from fumehood.server.tenants.quotas import QuotaExceededError
from fumehood.server.tenants.tenants import NoSuchTenantError

MEDIA_TYPE = "application/problem+json"


class NotFoundError(FumehoodError):
    """The tenant has none, and never had: the same words for every id."""

    def __init__(self, what: str) -> None:
        super().__init__(f"there is no such {what}")


class RequestConflictError(FumehoodError):
    """What is asked for contradicts what is there, and may work later."""


_STATUSES: tuple[tuple[type[Exception], int], ...] = (
    (NotAuthenticatedError, 401),
    (ForbiddenError, 403),
    (NoSuchSandboxError, 404),
    (NoSuchTenantError, 404),
    (NotFoundError, 404),
    (RequestConflictError, 409),
    (SandboxBusyError, 409),
    (EndedError, 410),
    (SandboxClosedError, 410),
    (QuotaError, 429),
    (TooManyConnectionsError, 429),
    (DrainingError, 503),
    (NoCapacityError, 503),
    (ElsewhereError, 409),
    (StorageError, 503),
    (EngineError, 503),
    (DatabaseAwayError, 503),
    (AuditError, 503),
    (DeniedError, 403),
    (UsageError, 422),
)
_TITLES = {
    401: "not authenticated",
    403: "not allowed",
    404: "not found",
    409: "in the way",
    410: "ended",
    422: "not valid",
    429: "quota used up",
    500: "the server failed",
    503: "not available",
}
_log = logging.getLogger(__name__)
_RETRY = {409: "1", 429: "5", 503: "5"}


class PlainJson(JSONResponse):
    """JSON in ASCII: names of files may hold what is not Unicode, and UTF-8 cannot carry."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


class ProblemAnswer(PlainJson):
    media_type = MEDIA_TYPE


def problem(status: int, detail: str, headers: Mapping[str, str] | None = None, **details: object) -> ProblemAnswer:
    title = _TITLES.get(status) or http.HTTPStatus(status).phrase.lower()
    content = {"title": title, "status": status, "detail": detail, **details}
    return ProblemAnswer(content, status, dict(headers or {}))


async def answer_problem(request: HTTPConnection, error: Exception) -> ProblemAnswer:
    if isinstance(error, HTTPException):
        return problem(error.status_code, str(error.detail), error.headers)
    status = _status(error)
    known = isinstance(error, FumehoodError) and status != 500 and not isinstance(error, EngineError | AuditError)
    if not known and not isinstance(error, StorageError):
        _log.error("%s failed", request.scope.get("path"), exc_info=error)
    detail = str(error) if known else "the server failed; its own log has the reason"
    if isinstance(error, StorageError):
        detail = "the server cannot reach its database; try again"
    elif isinstance(error, EngineError):  # whose address is the operator's affair
        detail = "the tenant's container engine cannot be used, or lacks the image; the server's own log has the reason"
    elif isinstance(error, AuditError):
        detail = "the server cannot write the audit log, and without that nothing is done and no result is given"
    details, headers = _details(error)
    if status in _RETRY:
        headers.setdefault("Retry-After", _RETRY[status])
    return problem(status, detail, headers, **details)


def _status(error: Exception) -> int:
    if isinstance(error, UsageError) and error.errno == errno.ENOENT:
        return 404  # a file of a sandbox
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)


def _details(error: Exception) -> tuple[dict[str, object], dict[str, str]]:
    match error:
        case QuotaError():
            wait = max(1, math.ceil((error.resets or time.time() + 5) - time.time()))
            details: dict[str, object] = {"quota": error.quota, "limit": error.most, "used": error.used}
            author = error.author if isinstance(error, QuotaExceededError) else "the server's settings"
            details |= {"set_by": author, "resets_at": error.resets}
            return details, {"Retry-After": str(wait)}
        case EndedError():
            return {"cause": error.record.cause, "ended_at": error.record.ended}, {}
        case NotAuthenticatedError():
            return {}, {"WWW-Authenticate": "Bearer"}
        case ForbiddenError():
            return {"scope": error.scope.value}, {}
        case FailedTestsError():
            return {"problems": error.failures}, {}
        case PolicyError():
            return {"problems": error.problems}, {}
        case _:
            return {}, {}


def invalid_request(errors: Sequence[object]) -> ProblemAnswer:
    """For what does not fit the document: each place, and what is wrong there. What was sent is not repeated."""
    problems = [_place(cast("Mapping[str, Any]", each)) for each in errors]
    return problem(422, problems[0] if problems else "the request is not valid", problems=problems)


def _place(error: Mapping[str, Any]) -> str:
    return f"{'.'.join(map(str, error['loc']))}: {error['msg']}"
