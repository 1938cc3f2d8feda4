"""The principal of a request: its key is in the header `Authorization: Bearer`."""

from __future__ import annotations

from starlette.requests import HTTPConnection

from fumehood.server.identity.keys import authenticate
from fumehood.server.identity.principals import NotAuthenticatedError, Principal
from fumehood.server.storage.database import Database


async def authenticate_request(database: Database, request: HTTPConnection) -> Principal:
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        raise NotAuthenticatedError
    return await authenticate(database, key.strip(), request.client.host if request.client else None)
