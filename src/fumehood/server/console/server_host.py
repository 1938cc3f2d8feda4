"""The console of a server: sessions in its database, people sign in with a key or at their identity provider."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from starlette.routing import Route

from fumehood.server.console.provider_sign_in import ProviderSignIn
from fumehood.server.console.sessions import StoredSessions
from fumehood.server.console.sign_in import KeySignIn
from fumehood.server.console.source import ConsoleSource
from fumehood.server.console.tenant_source import TenantSource
from fumehood.server.identity.code_flow import CodeFlow
from fumehood.server.identity.principals import Principal

if TYPE_CHECKING:
    from fumehood.server.lifetime import ServerState


class ServerConsole:
    is_local = False

    def __init__(self, server: ServerState) -> None:
        self._server = server
        self.sessions = StoredSessions(server.database)
        self._sources: dict[str, TenantSource] = {}

    def source_of(self, principal: Principal) -> ConsoleSource:
        if principal.tenant not in self._sources:
            self._sources[principal.tenant] = TenantSource(self._server, principal.tenant)
        return self._sources[principal.tenant]

    @asynccontextmanager
    async def admitted(self, principal: Principal) -> AsyncIterator[None]:
        await self._server.requests.take(principal.tenant)
        with self._server.connections.one_more(principal.tenant):
            yield

    def sign_in_routes(self) -> list[Route]:
        issuers = self._server.settings.oidc
        flows = {name: CodeFlow(each) for name, each in issuers.items() if each.client is not None}
        authenticator = self._server.authenticator
        by_key = KeySignIn(self.sessions, authenticator.credential, tuple(flows))
        return [*by_key.routes(), *ProviderSignIn(self.sessions, authenticator, flows).routes()]

    def close(self) -> None:
        """Ends the streams of open pages, which look for the server that comes next."""
        for source in self._sources.values():
            source.feed.close()
