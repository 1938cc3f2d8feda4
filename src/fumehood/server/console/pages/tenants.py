"""Tenants, for those who run the server: which there are, their quotas and what they use.

Done by the functions of the API.
"""

from __future__ import annotations

import time

from pydantic import ValidationError
from starlette.responses import Response

from fumehood.audit.trail import Trail
from fumehood.errors import UsageError
from fumehood.server.api.models import NewQuota, NewTenant
from fumehood.server.api.tenants import drop_tenant, make_tenant, set_quota
from fumehood.server.console.egress_rows import EgressRow, egress_rows
from fumehood.server.console.page_request import ConsoleViewed, NoSuchPageError, PageRequest
from fumehood.server.console.pages.usage import read_usage
from fumehood.server.console.routes import ConsoleRoute, PageModule
from fumehood.server.console.tenant_pages import server_of
from fumehood.server.console.threads import LogThreads
from fumehood.server.identity.keys import list_keys
from fumehood.server.identity.principals import Scope
from fumehood.server.tenants.quotas import Quota, count_open, read_state
from fumehood.server.tenants.tenants import NoSuchTenantError, list_tenants, require_tenant

_SCOPES = (Scope.OPERATE,)
_MOST_ROWS = 50


async def show_all(page: PageRequest) -> Response:
    server = server_of(page)
    tenants = await list_tenants(server.database)
    is_open: dict[str, float] = {}
    for tenant in tenants:
        async with server.database.transaction(tenant.name) as transaction:
            is_open[tenant.name], _ = await count_open(transaction, tenant.name)
    return await page.page("tenants.html", tenants=tenants, is_open=is_open)


async def show(page: PageRequest) -> Response:
    server, name = server_of(page), page.path("name")
    await _require(page)
    keys, now = await list_keys(server.database, name), time.time()
    rows = await _egress(page, name)
    return await page.page(
        "tenant.html",
        name=name,
        quotas=await read_state(server.database, name, now),
        keys=[each for each in keys if each.revoked is None and (each.expires is None or each.expires > now)],
        usage=await read_usage(server, name, 7 * 24),
        denied=[row for row in rows if not row.is_allowed][:_MOST_ROWS],
        allowed=[row for row in rows if row.is_allowed][:_MOST_ROWS],
        known=frozenset[str](),
        changeable=frozenset[str](),
    )


async def _egress(page: PageRequest, tenant: str) -> list[EgressRow]:
    """By host and rule. The tenant's log says who has looked."""
    chains = server_of(page).chains
    if not chains.has_log_of(tenant):
        return []
    log = chains.log_of(tenant)
    await Trail(log, page.principal.name, tenant).write(ConsoleViewed("egress", tenant, None))
    return await LogThreads(tenant)(lambda: egress_rows(log))


async def create(page: PageRequest) -> Response:
    try:
        wanted = NewTenant.model_validate({"name": page.form.get("name", "").strip()})
    except ValidationError:
        raise UsageError("a tenant needs a name: small letters, digits and `-`") from None
    await make_tenant(server_of(page), page.principal, wanted)
    return page.go(f"/tenants/{wanted.name}")


async def remove(page: PageRequest) -> Response:
    """Only of one whose name was typed: there is no way back."""
    await _require(page)
    name = page.path("name")
    if page.form.get("name") != name:
        raise UsageError(f"type the name of the tenant, {name}, to remove it")
    await drop_tenant(server_of(page), page.principal, name)
    return page.go("/tenants")


async def change_quota(page: PageRequest) -> Response:
    await _require(page)
    name = page.path("name")
    try:
        quota = Quota(page.form.get("quota", ""))
        wanted = NewQuota.model_validate({"value": page.form.get("value", "").strip()})
    except (ValidationError, ValueError):
        raise UsageError("a quota is a number, or a size such as 4G") from None
    await set_quota(server_of(page), page.principal, name, quota, wanted)
    return page.go(f"/tenants/{name}")


async def _require(page: PageRequest) -> None:
    try:
        await require_tenant(server_of(page).database, page.path("name"))
    except NoSuchTenantError:
        raise NoSuchPageError from None


MODULE = PageModule(
    (
        ConsoleRoute("/tenants", show_all, _SCOPES, nav="Tenants", key="m"),
        ConsoleRoute("/tenants", create, _SCOPES, "POST"),
        ConsoleRoute("/tenants/{name}", show, _SCOPES),
        ConsoleRoute("/tenants/{name}/quotas", change_quota, _SCOPES, "POST"),
        ConsoleRoute("/tenants/{name}/remove", remove, _SCOPES, "POST"),
    ),
    {},
)
