"""Sign-in at an identity provider, by OpenID Connect's authorization code with PKCE: a person comes back with a token.

The token is an access token for this server, and is believed exactly as one in a request is: what it says of its
holder was verified by the same code.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import quote, urlencode, urlsplit

from fumehood.server.http_call import CallFailedError, HttpCall, check_url, tls_context
from fumehood.server.identity.issuers import IssuerSettings
from fumehood.server.identity.provider import DISCOVERY
from fumehood.server.identity.tokens import TokenRefusedError
from fumehood.server.tenant_threads import TenantThreads

T = TypeVar("T")
_CALL_SECONDS = 10.0
_FRESH_SECONDS = 15 * 60
_MOST_SECRET_BYTES = 4096
_THREADS = TenantThreads("sign-in", most=8, most_of_tenant=4)
"""By issuer. Whoever has not signed in yet can begin as many sign-ins as they like: a provider that hangs holds up
those alone, and nothing else that the server does beside its event loop."""


class CodeFlow:
    def __init__(self, settings: IssuerSettings) -> None:
        self._settings = settings
        self._context = tls_context(settings.ca) if settings.issuer.startswith("https:") else None

    async def sign_in_address(self, redirect: str, state: str, verifier: str, *, again: bool) -> str:
        """Where the browser is sent. With `again` the provider asks also those whom it knows, and says when it did:

        whoever sits at the browser can take that out of the address, so that what it says is looked at.
        """
        endpoint = (await self._beside(self._document)).get("authorization_endpoint")
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        asked = {
            "response_type": "code",
            "client_id": self._settings.client or "",
            "redirect_uri": redirect,
            "scope": " ".join(self._settings.sign_in_scopes),
            "state": state,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
            **({"prompt": "login", "max_age": str(_FRESH_SECONDS)} if again else {}),
        }
        place = check_url(str(endpoint))
        return f"{place}{'&' if urlsplit(place).query else '?'}{urlencode(asked)}"

    async def tokens(self, code: str, redirect: str, verifier: str) -> tuple[str, str | None]:
        """The access token for a code, and the ID token if there is one; TokenRefusedError if there is no first."""
        try:
            return await self._beside(lambda: self._redeem(code, redirect, verifier))
        except (CallFailedError, ValueError) as error:
            raise TokenRefusedError("the identity provider did not give one; sign in again") from error

    async def _beside(self, work: Callable[[], T]) -> T:
        return await _THREADS.run(self._settings.issuer, work)

    def _redeem(self, code: str, redirect: str, verifier: str) -> tuple[str, str | None]:
        fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect,
            "client_id": self._settings.client or "",
            "code_verifier": verifier,
        }
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        if self._settings.client_secret_file is not None:
            secret = Path(self._settings.client_secret_file).read_text()[:_MOST_SECRET_BYTES].strip()
            pair = f"{quote(self._settings.client or '')}:{quote(secret)}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        endpoint = check_url(str(self._document().get("token_endpoint")))
        answer = self._call(endpoint).send("POST", urlencode(fields).encode(), headers)
        found: object = json.loads(answer.body) if answer.status == 200 else None
        given = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
        token, id_token = given.get("access_token"), given.get("id_token")
        if not isinstance(token, str):
            raise ValueError(f"the token endpoint answers {answer.status}, without a token")
        return token, id_token if isinstance(id_token, str) else None

    def _document(self) -> dict[str, Any]:
        answer = self._call(self._settings.issuer.rstrip("/") + DISCOVERY).send("GET")
        document: object = json.loads(answer.body) if answer.status == 200 else None
        if not isinstance(document, dict) or cast("dict[str, Any]", document).get("issuer") != self._settings.issuer:
            raise ValueError("its discovery document is not that of the issuer")
        return cast("dict[str, Any]", document)

    def _call(self, url: str) -> HttpCall:
        return HttpCall(url, self._context, seconds=_CALL_SECONDS)
