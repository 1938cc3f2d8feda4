"""Who may send requests over HTTP: those with the token, and pages of the origins that are named.

A web page that a person looks at can reach servers on that person's machine. So every request needs the token, which no
page knows, and may come from no origin that was not named.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from fumehood.errors import UsageError

_ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*)://(?:[a-z0-9_.-]+|\[[0-9a-f:.]+\])(?::([0-9]+))?", re.ASCII)
_DEFAULT_PORTS = {"http": "80", "https": "443"}
_METHODS = ("GET", "POST", "DELETE")
_ACCEPTED_HEADERS = (
    *("Authorization", "Content-Type", "Last-Event-ID", "Mcp-Session-Id", "Mcp-Protocol-Version"),
    *("Mcp-Method", "Mcp-Name"),  # of the revision that clients try first; they have to get as far as its refusal
)
_SHOWN_HEADERS = ("Mcp-Session-Id", "WWW-Authenticate")


def check_origin(origin: str) -> None:
    """It is compared as a whole, so it has to be written as browsers write it; there are no patterns."""
    match = _ORIGIN.fullmatch(origin)
    if match is None or (match[2] is not None and _DEFAULT_PORTS.get(match[1]) == match[2]):
        raise UsageError(
            f"the origin {origin!r} is not one that a browser sends; write the scheme, the host in lower case and the "
            "port unless it is the scheme's own, such as https://tools.example.com"
        )


def require_token(inner: ASGIApp, token: str, origins: Sequence[str]) -> ASGIApp:
    """The application, for requests that have the token, which is checked by the headers alone.

    Before a page may send the token, its browser asks without it (a preflight). Only preflights of the named origins
    are answered; every other request without the token gets status 401.
    """
    checked = _TokenCheck(inner, token)
    return _PagesOf(origins, checked) if origins else checked


class _PagesOf:
    def __init__(self, origins: Sequence[str], inner: ASGIApp) -> None:
        self._origins, self._inner = frozenset(origins), inner
        # Without cookies: what a page sends by itself opens nothing here.
        self._for_pages = CORSMiddleware(
            inner,
            allow_origins=tuple(origins),
            allow_methods=_METHODS,
            allow_headers=_ACCEPTED_HEADERS,
            expose_headers=_SHOWN_HEADERS,
            allow_private_network=True,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self._for_pages if self._is_named(scope) else self._inner)(scope, receive, send)

    def _is_named(self, scope: Scope) -> bool:
        sent = Headers(scope=scope).getlist("origin") if scope["type"] == "http" else []
        return len(sent) == 1 and sent[0] in self._origins


class _TokenCheck:
    """Checks the token when only the headers of a request have been read."""

    def __init__(self, inner: ASGIApp, token: str) -> None:
        self._inner, self._wanted = inner, token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or (scope["type"] == "http" and self._knows(Headers(scope=scope))):
            await self._inner(scope, receive, send)
            return
        response = PlainTextResponse(
            "send the header `Authorization: Bearer TOKEN`\n", 401, {"www-authenticate": "Bearer"}
        )
        await response(scope, receive, send)

    def _knows(self, headers: Headers) -> bool:
        """Compares the token in constant time. The name of the scheme has no case (RFC 9110, 11.1)."""
        sent = headers.getlist("authorization")
        if len(sent) != 1:
            return False
        scheme, _, token = sent[0].partition(" ")
        is_token = hmac.compare_digest(token.strip(" ").encode("latin-1", "replace"), self._wanted)
        return is_token and scheme.lower() == "bearer"
