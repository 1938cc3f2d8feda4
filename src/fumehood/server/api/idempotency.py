"""`Idempotency-Key`: a request that is repeated with the same key gets the answer of the first, and does nothing.

The answer is kept for a day, sealed, because it may hold a key or a token that is shown once. A request that was given
up by its client is carried out to its end, so that the answer is there when the client asks again.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fumehood.errors import UsageError
from fumehood.server.api.problems import RequestConflictError, answer_problem
from fumehood.server.identity.principals import Principal
from fumehood.server.storage.database import EVERYTHING, Database, DuplicateError, Row

if TYPE_CHECKING:
    from fumehood.server.lifetime import ServerState

_MOST_CHARACTERS = 200
_KEPT_SECONDS = 86400
_UNDER_WAY = 0
_ROW_BYTES = 512
_KNOWN_SECONDS = 600.0
_NOTHING_HAPPENED = frozenset({401, 403, 429, 503})
_STREAMS = ("application/x-ndjson", "text/event-stream")


class IdempotentAnswers:
    """Middleware. Needs the principal of the request, and so comes behind authentication."""

    def __init__(self, inner: ASGIApp, server: Callable[[], ServerState]) -> None:
        self._inner, self._server = inner, server
        self._room = _AnswerRoom()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        key = _key(scope)
        if key is None:
            await self._inner(scope, receive, send)
            return
        try:
            answer = await self._answer(scope, receive, key)
        except Exception as error:
            answer = await answer_problem(Request(scope), error)
        await answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, key: str) -> Response:
        if not 1 <= len(key) <= _MOST_CHARACTERS or not key.isascii() or not key.isprintable():
            raise UsageError(f"Idempotency-Key must be printable ASCII of 1 to {_MOST_CHARACTERS} characters")
        if any(kind in Headers(scope=scope).get("accept", "") for kind in _STREAMS):
            raise UsageError("an answer that is streamed cannot be repeated; leave Idempotency-Key out")
        body = await Request(scope, receive).body()
        store = _AnswerStore(self._server(), scope["state"]["principal"], key, _digest(scope, body))
        known = await store.begin()
        if known is not None:
            return known
        try:
            await self._room.check(self._server(), scope["state"]["principal"].tenant)
        except BaseException:
            await asyncio.shield(store.forget())
            raise
        return await asyncio.shield(asyncio.ensure_future(self._carry_out(scope, body, store)))

    async def _carry_out(self, scope: Scope, body: bytes, store: _AnswerStore) -> Response:
        recorder = _Recorder(body)
        await self._inner(scope, recorder.receive, recorder.send)
        self._room.add(scope["state"]["principal"].tenant, await store.finish(recorder.response))
        return recorder.response


class _AnswerRoom:
    """What the answers of tenants take of the database: looked up now and then, and counted in between."""

    def __init__(self) -> None:
        self._used: dict[str, tuple[float, float]] = {}
        """Tenant -> bytes, and until when they are believed."""

    async def check(self, server: ServerState, tenant: str) -> None:
        """Before anything is done: an answer that could not be kept would not be repeated."""
        most = server.settings.limits.answers_of_tenant
        if self._used.get(tenant, (0.0, 0.0))[1] < time.monotonic():
            self._used[tenant] = await _stored_bytes(server.database, tenant), time.monotonic() + _KNOWN_SECONDS
        if self._used[tenant][0] >= most:
            detail = f"the answers to the tenant's requests with an Idempotency-Key take {most} bytes and more"
            after = {"Retry-After": f"{_KNOWN_SECONDS:g}"}
            raise HTTPException(429, f"{detail}; leave it out, or wait until those of yesterday are gone", after)

    def add(self, tenant: str, size: int) -> None:
        used, until = self._used[tenant]
        self._used[tenant] = used + size, until


async def _stored_bytes(database: Database, tenant: str) -> float:
    async with database.transaction(tenant) as transaction:
        statement = f"SELECT COALESCE(SUM(LENGTH(sealed) + {_ROW_BYTES}), 0) AS bytes FROM answers WHERE tenant = ?"
        row = await transaction.row(statement, tenant)
    return float(row["bytes"] or 0) if row else 0.0


class _Recorder:
    """Both ends of a request whose body is there, and whose client never leaves."""

    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = body
        self.response = Response()
        self._parts: list[bytes] = []

    async def receive(self) -> Message:
        if self._body is None:
            await asyncio.Event().wait()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.response = Response(status_code=message["status"])
            self.response.raw_headers = list(message.get("headers", ()))
        elif message["type"] == "http.response.body":
            self._parts.append(message.get("body", b""))
            self.response.body = b"".join(self._parts)


class _AnswerStore:
    """The row of one key. Others of the same tenant do not find it: they may have other scopes."""

    def __init__(self, server: ServerState, principal: Principal, key: str, digest: str) -> None:
        self._database, self._sealing = server.database, server.sealing
        # Neither can have the character between them.
        self._tenant, self._key, self._digest = principal.tenant, f"{principal.name}\n{key}", digest

    async def begin(self) -> Response | None:
        """The answer, if there is one. RequestConflictError while the first is under way, or if it never ended."""
        try:
            async with self._database.transaction(self._tenant) as transaction:
                await transaction.execute(
                    "INSERT INTO answers (tenant, key, request_sha256, status, sealed, created) VALUES (?,?,?,?,?,?)",
                    *(self._tenant, self._key, self._digest, _UNDER_WAY, "", time.time()),
                )
        except DuplicateError:
            return await self._known()
        return None

    async def _known(self) -> Response:
        statement = "SELECT * FROM answers WHERE tenant = ? AND key = ?"
        async with self._database.transaction(self._tenant) as transaction:
            row = await transaction.row(statement, self._tenant, self._key)
        if row is None or row["status"] == _UNDER_WAY:
            raise RequestConflictError(
                "a request with this Idempotency-Key is under way, or was cut off; ask again later"
            )
        if row["request_sha256"] != self._digest:
            raise UsageError("this Idempotency-Key was used for another request; take a new one")
        return self._opened(row)

    def _opened(self, row: Row) -> Response:
        kept = json.loads(self._sealing.open(str(row["sealed"]), "answer", self._tenant, self._key))
        response = Response(b64decode(kept["body"]), int(row["status"] or 0))
        response.raw_headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in kept["headers"]]
        return response

    async def finish(self, response: Response) -> int:
        """How many bytes are kept."""
        if response.status_code in _NOTHING_HAPPENED:
            await self.forget()
            return 0
        sealed = self._sealed(response)
        async with self._database.transaction(self._tenant) as transaction:
            await transaction.execute(
                "UPDATE answers SET status = ?, sealed = ? WHERE tenant = ? AND key = ?",
                *(response.status_code, sealed, self._tenant, self._key),
            )
        return len(sealed) + _ROW_BYTES

    async def forget(self) -> None:
        """Nothing was done."""
        async with self._database.transaction(self._tenant) as transaction:
            statement = "DELETE FROM answers WHERE tenant = ? AND key = ?"
            await transaction.execute(statement, self._tenant, self._key)

    def _sealed(self, response: Response) -> str:
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in response.raw_headers]
        kept = json.dumps({"headers": headers, "body": b64encode(bytes(response.body)).decode()})
        return self._sealing.seal(kept.encode(), "answer", self._tenant, self._key)


async def forget_answers(database: Database) -> None:
    async with database.transaction(EVERYTHING) as transaction:
        await transaction.execute("DELETE FROM answers WHERE created < ?", time.time() - _KEPT_SECONDS)


def _key(scope: Scope) -> str | None:
    if scope["type"] != "http" or scope["method"] != "POST" or "principal" not in scope.get("state", {}):
        return None
    return Headers(scope=scope).get("idempotency-key")


def _digest(scope: Scope, body: bytes) -> str:
    place = f"{scope['path']}?{scope['query_string'].decode('latin-1')}\n"
    return hashlib.sha256(place.encode() + body).hexdigest()
