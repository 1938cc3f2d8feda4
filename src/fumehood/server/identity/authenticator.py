"""Who makes a request: a key of this server's, or a token of an issuer that it believes."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import HTTPConnection

from fumehood.server.identity.issuers import IssuerSettings
from fumehood.server.identity.keys import authenticate
from fumehood.server.identity.principals import NotAuthenticatedError, Principal
from fumehood.server.identity.tokens import TokenRefusedError, TokenVerifier
from fumehood.server.storage.database import Database
from fumehood.server.tenants.tenants import NoSuchTenantError, require_tenant

_DOTS_OF_TOKEN = 2


class Authenticator:
    def __init__(self, database: Database, issuers: Mapping[str, IssuerSettings]) -> None:
        self._database = database
        self._tokens = TokenVerifier(issuers) if issuers else None

    async def request(self, request: HTTPConnection) -> Principal:
        """The principal of `Authorization: Bearer`; NotAuthenticatedError if that is missing, there twice or wrong."""
        sent = request.headers.getlist("authorization")
        scheme, _, credential = sent[0].partition(" ") if len(sent) == 1 else ("", "", "")
        if scheme.lower() != "bearer":
            raise NotAuthenticatedError
        return await self.credential(credential.strip(" "), request.client.host if request.client else None)

    async def credential(self, credential: str, address: str | None) -> Principal:
        if self._tokens is None or credential.count(".") != _DOTS_OF_TOKEN:
            return await authenticate(self._database, credential, address)
        principal = await self._tokens.verify(credential)
        try:
            await require_tenant(self._database, principal.tenant)
        except NoSuchTenantError as error:
            raise TokenRefusedError("it does not name a tenant that its issuer may speak for") from error
        return principal

    async def sign_in_time(self, principal: Principal, id_token: str | None) -> float | None:
        """When the holder of a token showed who they are: what it says itself, or the ID token that came with it.

        None if neither does. That they hold a token says nothing of it: providers sign in silently those they know.
        """
        if principal.authenticated is not None or id_token is None or self._tokens is None:
            return principal.authenticated
        try:
            return await self._tokens.sign_in_time(id_token, principal)
        except TokenRefusedError:
            return None

    async def close(self) -> None:
        if self._tokens is not None:
            await self._tokens.close()
