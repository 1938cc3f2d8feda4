"""Workers of the cluster, for those who run the server: what each offers and has, and how to empty one."""

from __future__ import annotations

from starlette.responses import Response

from fumehood.server.api.problems import NotFoundError
from fumehood.server.api.workers import drain_worker
from fumehood.server.console.page_request import NoSuchPageError, PageRequest
from fumehood.server.console.routes import ConsoleRoute, PageModule
from fumehood.server.console.tenant_pages import server_of
from fumehood.server.identity.principals import Scope

_SCOPES = (Scope.OPERATE,)


async def show(page: PageRequest) -> Response:
    fleet = server_of(page).fleet
    return await page.page("workers.html", workers=fleet.describe() if fleet else [], has_fleet=fleet is not None)


async def drain(page: PageRequest) -> Response:
    try:
        await drain_worker(server_of(page), page.principal, page.path("name"))
    except NotFoundError:
        raise NoSuchPageError from None
    return page.go("/workers")


MODULE = PageModule(
    (
        ConsoleRoute("/workers", show, _SCOPES, nav="Workers", key="w"),
        ConsoleRoute("/workers/{name}/drain", drain, _SCOPES, "POST"),
    ),
    {},
)
