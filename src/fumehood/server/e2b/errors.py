"""Errors in E2B's two spellings: `{code: number, message}` of its REST calls, `{code: word, message}` of Connect's."""

from __future__ import annotations

import errno
import logging
from collections.abc import Mapping

from starlette.responses import JSONResponse

from fumehood.errors import AuditError, DeniedError, FumehoodError, UsageError
from fumehood.frozen import frozen
from fumehood.server.connections import TooManyConnectionsError
from fumehood.server.identity.principals import ForbiddenError, NotAuthenticatedError
from fumehood.server.sandboxes.errors import DrainingError, EndedError, NoSuchSandboxError, SandboxClosedError
from fumehood.server.storage.database import StorageError
from fumehood.server.tenants.meter import DatabaseAwayError
from fumehood.server.tenants.quotas import QuotaExceededError

_log = logging.getLogger(__name__)
_GONE = "the sandbox was not found: it has ended, or the token is not that of it"


class BodyError(FumehoodError):
    """A body that is too large, too slow, or not what it says it is."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class NotHereError(FumehoodError):
    """Something of E2B's that has no counterpart here."""


class MissingError(FumehoodError):
    """A process, a context or a watcher that is not there, or not any more."""


@frozen
class CallFailure:
    code: str
    """Connect's word."""
    status: int
    message: str

    @property
    def words(self) -> Mapping[str, str]:
        return {"code": self.code, "message": self.message}

    def as_rpc(self) -> JSONResponse:
        return JSONResponse(dict(self.words), self.status)

    def as_rest(self) -> JSONResponse:
        return JSONResponse({"code": self.status, "message": self.message}, self.status)


_KINDS: tuple[tuple[type[Exception], str, int], ...] = (
    (NotAuthenticatedError, "unauthenticated", 401),
    (ForbiddenError, "permission_denied", 403),
    (NoSuchSandboxError, "not_found", 404),
    (EndedError, "not_found", 404),
    (SandboxClosedError, "not_found", 404),
    (MissingError, "not_found", 404),
    (NotHereError, "unimplemented", 501),
    (QuotaExceededError, "resource_exhausted", 429),
    (TooManyConnectionsError, "resource_exhausted", 429),
    (DrainingError, "unavailable", 503),
    (StorageError, "unavailable", 503),
    (DatabaseAwayError, "unavailable", 503),
    (DeniedError, "permission_denied", 403),
    (UsageError, "invalid_argument", 400),
)
_BY_ERRNO = {
    errno.ENOENT: ("not_found", 404),
    errno.EEXIST: ("already_exists", 409),
    errno.ENOSPC: ("resource_exhausted", 507),
    errno.EDQUOT: ("resource_exhausted", 507),
}
_OF_BODIES = {"resource_exhausted": 413, "deadline_exceeded": 408, "invalid_argument": 400, "unimplemented": 415}


def failure_of(error: Exception) -> CallFailure:
    """What a caller may know of it. Errors that are not ours may hold anything: their text stays here."""
    if isinstance(error, BodyError):
        return CallFailure(error.code, _OF_BODIES[error.code], str(error))
    if isinstance(error, StorageError):
        return CallFailure("unavailable", 503, "the server cannot reach its database; try again")
    if isinstance(error, AuditError):
        _log.error("a request failed", exc_info=error)
        return CallFailure("unavailable", 503, "the server cannot write the audit log, and without that does nothing")
    if isinstance(error, FumehoodError):
        for kind, code, status in _KINDS:
            if isinstance(error, kind) and error.errno not in _BY_ERRNO:
                return CallFailure(code, status, str(error))
        code, status = _BY_ERRNO.get(error.errno or 0, ("internal", 500))
        return CallFailure(code, status, str(error))
    if isinstance(error, ConnectionAbortedError):  # nothing for the log, which clients could fill by leaving
        return CallFailure("canceled", 499, str(error))
    _log.error("a request failed: unexpected %s", type(error).__name__, exc_info=error)
    return CallFailure("internal", 500, "the server failed; its own log has the reason")


def gone() -> JSONResponse:
    """The same for an id that never was, one of another tenant, one that has ended, and a wrong token."""
    return JSONResponse({"code": 502, "message": _GONE}, 502)
