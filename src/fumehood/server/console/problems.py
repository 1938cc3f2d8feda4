"""What went wrong, for somebody who looks at a page: a status, a title and a sentence."""

from __future__ import annotations

import logging

from starlette.exceptions import HTTPException

from fumehood.errors import AuditError, DeniedError, FumehoodError, StepFailedError, UsageError
from fumehood.server.console.page_request import NoSuchPageError, StalePageError
from fumehood.server.identity.principals import ForbiddenError, NotAuthenticatedError
from fumehood.server.storage.database import StorageError
from fumehood.server.tenants.quotas import QuotaExceededError

_log = logging.getLogger(__name__)
_KINDS: tuple[tuple[type[Exception], int, str], ...] = (
    (NotAuthenticatedError, 401, "Sign in"),
    (ForbiddenError, 403, "Not allowed"),
    (NoSuchPageError, 404, "Not found"),
    (StalePageError, 409, "This page is out of date"),
    (QuotaExceededError, 429, "Too much at once"),
    (DeniedError, 403, "Not allowed"),
    (UsageError, 422, "That does not work"),
    (AuditError, 503, "The audit log cannot be used"),
    (StorageError, 503, "The database is away"),
)
# What these say names files and hosts of the operator's.
_INSTEAD: dict[type[Exception], str] = {
    AuditError: "It cannot be read or written as it is; `hood audit verify` on its host says why.",
    StorageError: "Try again in a moment.",
    NotAuthenticatedError: "Your session is over, or there was none. Sign in, and do it again.",
}


def status_and_words(error: Exception) -> tuple[int, str, str]:
    if isinstance(error, HTTPException):
        known = {404: ("Not found", str(NoSuchPageError())), 405: ("Not found", str(NoSuchPageError()))}
        title, words = known.get(error.status_code, ("That does not work", str(error.detail)))
        return error.status_code, title, words
    for kind, status, title in _KINDS:
        if isinstance(error, kind):
            if status >= 500:
                _log.warning("a page of the console failed: %s", error)
            if isinstance(error, ForbiddenError):
                return status, title, f"This takes the scope {error.scope.value!r}, which you do not have here."
            return status, title, _INSTEAD.get(kind, str(error))
    if isinstance(error, StepFailedError):
        return 500, "That cannot be shown", str(error)
    if isinstance(error, FumehoodError):
        return 429, "Not now", str(error)
    _log.error("a page of the console failed", exc_info=error)
    return 500, "The console failed", "The server's own log has the reason."
