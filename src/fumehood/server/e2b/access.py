"""Who calls: the API key of control calls, and the token of a sandbox for everything inside of it."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable
from contextlib import suppress

from starlette.requests import Request
from starlette.responses import Response

from fumehood.errors import DeniedError
from fumehood.server.e2b.errors import CallFailure, failure_of, gone
from fumehood.server.e2b.idempotency import IdempotentOpenings
from fumehood.server.e2b.sandboxes import E2bSandbox, E2bSandboxes, Terms
from fumehood.server.identity.keys import authenticate
from fumehood.server.identity.principals import ForbiddenError, Principal, Scope
from fumehood.server.storage.database import Database

_OWN_USERS = frozenset({"", "user"})

ControlHandler = Callable[["Control", Request, Principal], Awaitable[Response]]
SandboxHandler = Callable[[E2bSandbox, Request], Awaitable[Response]]
Endpoint = Callable[[Request], Awaitable[Response]]


class Control:
    """What control calls work with."""

    def __init__(self, database: Database, sandboxes: E2bSandboxes, terms: Terms) -> None:
        self.database, self.sandboxes, self.terms = database, sandboxes, terms
        self.openings = IdempotentOpenings()

    async def principal(self, request: Request) -> Principal:
        """NotAuthenticatedError without a key in force, ForbiddenError if that may not run code, QuotaExceededError."""
        address = request.client.host if request.client else None
        principal = await authenticate(self.database, request.headers.get("x-api-key", ""), address)
        for scope in (Scope.RUN, Scope.FILES):  # what a sandbox's token is good for
            if not principal.may(scope):
                raise ForbiddenError(scope)
        await self.terms.take_request(principal.tenant)
        return principal


def control_call(control: Control, handler: ControlHandler) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        try:
            return await handler(control, request, await control.principal(request))
        except Exception as error:
            return failure_of(error).as_rest()

    return endpoint


def sandbox_call(
    sandboxes: E2bSandboxes, handler: SandboxHandler, answer_failure: Callable[[CallFailure], Response]
) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        sandbox = sandbox_of(sandboxes, request)
        if sandbox is None:
            return gone()
        try:
            check_user(request)
            with sandbox.in_use():
                return await handler(sandbox, request)
        except Exception as error:
            return answer_failure(failure_of(error))

    return endpoint


def sandbox_of(sandboxes: E2bSandboxes, request: Request) -> E2bSandbox | None:
    """The sandbox that the request names, if it has its token."""
    identifier, _ = place_of(request)
    return sandboxes.find_by_token(identifier, token_of(request))


def token_of(request: Request) -> str:
    return request.headers.get("x-access-token") or request.headers.get("e2b-traffic-access-token") or ""


def place_of(request: Request) -> tuple[str, int | None]:
    """Id and port: of the headers, or of a host such as `3000-sbx_12.localhost`."""
    identifier, port = request.headers.get("e2b-sandbox-id"), request.headers.get("e2b-sandbox-port", "")
    if identifier is None:
        port, _, identifier = request.headers.get("host", "").partition(".")[0].partition("-")
    is_port = port.isascii() and port.isdigit() and len(port) <= 5
    return identifier, int(port) if is_port else None


def check_user(request: Request) -> None:
    """The SDKs name the user as that of Basic authentication, and in the query of files."""
    for user in (_basic_user(request), request.query_params.get("username", "")):
        if user not in _OWN_USERS:
            raise DeniedError(f"the user {user!r} does not exist here, and no program can become it; leave `user` out")


def _basic_user(request: Request) -> str:
    kind, _, encoded = request.headers.get("authorization", "").partition(" ")
    if kind.lower() != "basic":
        return ""
    with suppress(binascii.Error, UnicodeDecodeError):
        return base64.b64decode(encoded, validate=True).decode().partition(":")[0]
    return "?"
