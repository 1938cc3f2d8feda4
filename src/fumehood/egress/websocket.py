"""The handshake of a WebSocket (RFC 6455), checked on both sides. No I/O.

What is said on a WebSocket is not read, so only one that was asked for and that the server really speaks is opened: a
server that merely answers `101`, or a proxy in front of it, would be a pipe for anything.
"""

from __future__ import annotations

import base64
import binascii
import hashlib

from fumehood.egress.http1 import Headers, HttpRequest, HttpResponse, tokens, values_of

UPGRADE: Headers = [("Connection", "Upgrade"), ("Upgrade", "websocket")]
_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_KEY_BYTES = 16


def asks_for_websocket(request: HttpRequest) -> bool:
    """Whether a request is a whole handshake; headers of half a one are of one hop, and stay there."""
    if (request.method, request.version, request.body) != ("GET", 1, 0) or not _upgrades(request.headers):
        return False
    keys, versions = (values_of(request.headers, name) for name in ("sec-websocket-key", "sec-websocket-version"))
    return versions == ["13"] and len(keys) == 1 and _is_key(keys[0])


def opens_websocket(request: HttpRequest, response: HttpResponse) -> bool:
    """Whether a `101` is the answer to just this handshake."""
    (key,) = values_of(request.headers, "sec-websocket-key")
    return _upgrades(response.headers) and values_of(response.headers, "sec-websocket-accept") == [_answer(key)]


def _upgrades(headers: Headers) -> bool:
    return tokens(headers, "upgrade") == ["websocket"] and "upgrade" in tokens(headers, "connection")


def _is_key(text: str) -> bool:
    try:
        return len(base64.b64decode(text, validate=True)) == _KEY_BYTES
    except binascii.Error:
        return False


def _answer(key: str) -> str:
    digest = hashlib.sha1((key + _GUID).encode("ascii"), usedforsecurity=False).digest()
    return base64.b64encode(digest).decode("ascii")
