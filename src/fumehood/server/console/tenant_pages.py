"""What pages of a server, and not those of `hood console`, read from: the server and the viewer's tenant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fumehood.server.console.page_request import NoSuchPageError, PageRequest
from fumehood.server.console.tenant_source import TenantSource

if TYPE_CHECKING:
    from fumehood.server.lifetime import ServerState


def server_of(page: PageRequest) -> ServerState:
    if not isinstance(page.source, TenantSource):
        raise NoSuchPageError
    return page.source.server
