"""Sessions of people who are signed in: a cookie that says nothing, and what is known of who has it.

The cookie is random and stored as a digest. A session that was begun with a key is worth what that key is worth now: a
key that is revoked, or used from a network that it is not for, has no session.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from typing import Protocol

from starlette.requests import HTTPConnection
from starlette.responses import Response

from fumehood.frozen import frozen
from fumehood.server.identity.keys import find_principal
from fumehood.server.identity.principals import Principal, Scope
from fumehood.server.storage.database import EVERYTHING, Database

COOKIE = "__Host-hood"
FRESH_SECONDS = 15 * 60
KEY_SECONDS = 12 * 3600.0
USER_SECONDS = 3600.0
"""Of somebody whom an identity provider knows: then it is asked again."""
NOT_KNOWN = 0.0
_MOST_OF_PRINCIPAL = 100
"""The oldest make room. Of each one, not of the tenant: else one key could sign everybody out."""


@frozen
class ConsoleSession:
    principal: Principal
    signed_in: float
    """When the holder showed who they are; NOT_KNOWN if an identity provider does not say."""
    form_token: str
    """What every form of the session carries."""

    @property
    def is_fresh(self) -> bool:
        """Whether the holder has shown a moment ago who they are."""
        return 0 <= time.time() - self.signed_in < FRESH_SECONDS


class SessionStore(Protocol):
    async def begin(self, principal: Principal, signed_in: float) -> str:
        """The value of the cookie."""
        ...

    async def find(self, value: str, address: str | None) -> ConsoleSession | None: ...

    async def end(self, value: str) -> None: ...


class MemorySessions:
    """Of one process, and one user."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Principal, float]] = {}

    async def begin(self, principal: Principal, signed_in: float) -> str:
        value = secrets.token_urlsafe(32)
        self._known[digest(value)] = principal, signed_in
        return value

    async def find(self, value: str, address: str | None) -> ConsoleSession | None:
        found = self._known.get(digest(value))
        return ConsoleSession(*found, form_token(value)) if found else None

    async def end(self, value: str) -> None:
        self._known.pop(digest(value), None)


class StoredSessions:
    """In the server's database: they outlive it, and every server of the database knows them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def begin(self, principal: Principal, signed_in: float) -> str:
        value, now = secrets.token_urlsafe(32), time.time()
        seconds = KEY_SECONDS if principal.name.startswith("key:") else USER_SECONDS
        async with self._database.transaction(principal.tenant) as transaction:
            await transaction.execute(
                "DELETE FROM sessions WHERE tenant = ? AND principal = ? AND sha256 NOT IN "
                "(SELECT sha256 FROM sessions WHERE tenant = ? AND principal = ? ORDER BY expires DESC LIMIT ?)",
                *(principal.tenant, principal.name) * 2,
                _MOST_OF_PRINCIPAL - 1,
            )
            await transaction.execute(
                "INSERT INTO sessions (tenant, sha256, principal, scopes, signed_in, expires) VALUES (?,?,?,?,?,?)",
                *(principal.tenant, digest(value), principal.name, " ".join(sorted(principal.scopes))),
                *(signed_in, now + seconds),
            )
        return value

    async def find(self, value: str, address: str | None) -> ConsoleSession | None:
        async with self._database.transaction(EVERYTHING) as transaction:
            statement = "SELECT * FROM sessions WHERE sha256 = ? AND expires > ?"
            row = await transaction.row(statement, digest(value), time.time())
        if row is None:
            return None
        tenant, name = str(row["tenant"]), str(row["principal"])
        if name.startswith("key:"):
            principal = await find_principal(self._database, tenant, name.removeprefix("key:"), address)
        else:
            principal = Principal(tenant, name, frozenset(map(Scope, str(row["scopes"]).split())))
        return ConsoleSession(principal, float(row["signed_in"] or 0), form_token(value)) if principal else None

    async def end(self, value: str) -> None:
        async with self._database.transaction(EVERYTHING) as transaction:
            await transaction.execute("DELETE FROM sessions WHERE sha256 = ?", digest(value))


async def forget_sessions(database: Database) -> int:
    """Those that are over."""
    async with database.transaction(EVERYTHING) as transaction:
        return await transaction.execute("DELETE FROM sessions WHERE expires <= ?", time.time())


def digest(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()


def form_token(value: str) -> str:
    return hashlib.sha256(b"fumehood console form\n" + value.encode()).hexdigest()


def cookie_of(request: HTTPConnection) -> str | None:
    """None where there is none, or something that is not one of ours."""
    value = request.cookies.get(COOKIE)
    return value if value and len(value) <= 64 and value.isascii() else None


def set_cookie(response: Response, value: str) -> None:
    response.set_cookie(COOKIE, value, path="/", secure=True, httponly=True, samesite="strict")


def remove_cookie(response: Response) -> None:
    response.delete_cookie(COOKIE, path="/", secure=True, httponly=True, samesite="strict")
