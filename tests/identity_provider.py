"""An identity provider of the tests' own, at the loopback: keys, a discovery document, and any tokens."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

AUDIENCE = "fumehood"


class IdentityProviderServer:
    def __init__(self, server: ThreadingHTTPServer) -> None:
        self._server = server
        self.issuer = f"http://127.0.0.1:{server.server_address[1]}/realm"
        self.requests: list[str] = []
        self.private: dict[str, tuple[str, Any]] = {}
        self.published: list[dict[str, Any]] = []
        self.documents: dict[str, Any] = {}
        """Answers in the place of its own, by path."""
        self._codes: dict[str, tuple[str, str, str]] = {}
        self.access_claims: dict[str, Any] = {}
        """More claims of the access tokens that codes are redeemed for."""
        self.id_claims: dict[str, Any] | None = None
        """Those of the ID token that comes with it; None for none."""
        self.add_key("rsa", "RS256")

    def add_key(self, kid: str, algorithm: str, **fields: object) -> None:
        key: Any
        if algorithm.startswith("RS"):
            key, of = rsa.generate_private_key(65537, 2048), RSAAlgorithm
        elif algorithm.startswith("ES"):
            key, of = ec.generate_private_key(ec.SECP256R1()), ECAlgorithm
        else:
            key, of = ed25519.Ed25519PrivateKey.generate(), OKPAlgorithm
        self.private[kid] = algorithm, key
        self.published.append({**json.loads(of.to_jwk(key.public_key())), "kid": kid, "use": "sig", **fields})

    def claims(self, **claims: object) -> dict[str, object]:
        now = time.time()
        usual: dict[str, object] = {"iss": self.issuer, "aud": AUDIENCE, "sub": "ada", "exp": now + 300, "iat": now}
        return {**usual, "tenant": "acme", "roles": ["developer"], **claims}

    def token(self, kid: str = "rsa", *, header: dict[str, object] | None = None, **claims: object) -> str:
        algorithm, key = self.private[kid]
        return jwt.encode(self.claims(**claims), key, algorithm, headers={"kid": kid, **(header or {})})

    def forged(self, secret: bytes, **header: object) -> str:
        """Made by hand: libraries refuse to make such tokens."""
        first = _part({"typ": "JWT", "kid": "rsa", **header}) + "." + _part(self.claims())
        return f"{first}.{_encode(hmac.digest(secret, first.encode(), hashlib.sha256) if secret else b'')}"

    def answer(self, path: str) -> Any:
        self.requests.append(path)
        own = {
            "/realm/.well-known/openid-configuration": {
                "issuer": self.issuer,
                "jwks_uri": self.issuer + "/keys",
                "authorization_endpoint": self.issuer + "/authorize",
                "token_endpoint": self.issuer + "/token",
            },
            "/realm/keys": {"keys": self.published},
        }
        return self.documents.get(path, own.get(path))

    def give_code(self, asked: dict[str, list[str]]) -> str:
        """What a browser comes back with after a sign-in that was asked for like this; good once."""
        code = f"code-{len(self._codes)}"
        self._codes[code] = asked["client_id"][0], asked["redirect_uri"][0], asked["code_challenge"][0]
        return code

    def redeem(self, form: dict[str, list[str]]) -> dict[str, str] | None:
        digest = hashlib.sha256(form["code_verifier"][0].encode()).digest()
        given = form["client_id"][0], form["redirect_uri"][0], _encode(digest)
        if self._codes.pop(form["code"][0], None) != given:
            return None
        given = {"access_token": self.token(**self.access_claims), "token_type": "Bearer"}
        if self.id_claims is not None:
            given["id_token"] = self.token(aud=form["client_id"][0], **self.id_claims)
        return given

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def identity_provider() -> Iterator[IdentityProviderServer]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(provider.answer(self.path))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            self._send(provider.redeem(parse_qs(body)) if self.path == "/realm/token" else None)

        def _send(self, found: Any) -> None:
            content = found if isinstance(found, bytes) else json.dumps(found).encode()
            self.send_response(404 if found is None else 200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider = IdentityProviderServer(server)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        provider.stop()
        thread.join()


def _part(value: object) -> str:
    return _encode(json.dumps(value).encode())


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
