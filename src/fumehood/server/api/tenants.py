"""Tenants for operators, and quotas, usage and secrets of each tenant, over HTTP."""

from __future__ import annotations

import time
from collections import Counter
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from fumehood.server import events
from fumehood.server.api.models import (
    Name,
    NewQuota,
    NewSecret,
    NewTenant,
    QuotaAnswer,
    SecretAnswer,
    TenantAnswer,
    UsageAnswer,
)
from fumehood.server.api.problems import NotFoundError, PlainJson
from fumehood.server.api.routes import Caller, RunningServer, Server, scoped
from fumehood.server.identity.principals import Scope
from fumehood.server.tenants.quotas import Quota, read_state, set_limit
from fumehood.server.tenants.secrets import list_secrets, put_secret, remove_secret
from fumehood.server.tenants.tenants import create_tenant, list_tenants, remove_tenant, require_tenant
from fumehood.server.tenants.usage import start_of_day, usage_by_hour

Moment = Annotated[float | None, Query(ge=0, le=1e11, allow_inf_nan=False, description="Seconds since 1970.")]
_MOST_DAYS_SECONDS = 32 * 86400.0
router = APIRouter(tags=["tenants"])


@router.get("/tenants", response_model=list[TenantAnswer], **scoped(Scope.OPERATE))
async def show_tenants(server: Server) -> Response:
    tenants = await list_tenants(server.database)
    return PlainJson([{"name": tenant.name, "created_at": tenant.created} for tenant in tenants])


@router.post("/tenants", response_model=TenantAnswer, **scoped(Scope.OPERATE, 201))
async def make_tenant(server: Server, caller: Caller, wanted: NewTenant) -> Response:
    """A tenant with the policies that come with the package."""
    tenant = await create_tenant(server.database, wanted.name, caller.name)
    await server.tenancy.remove_store(tenant.name)  # of one that had the name, and whose removal was not finished
    await server.chains.own(caller).write(events.TenantCreated(tenant.name))
    return PlainJson({"name": tenant.name, "created_at": tenant.created}, 201)


@router.delete("/tenants/{name}", **scoped(Scope.OPERATE, 204))
async def drop_tenant(server: Server, caller: Caller, name: Name) -> Response:
    """All of it but its audit chain; it may have no sandbox open."""
    await remove_tenant(server.database, name)
    await server.tenancy.remove_store(name)  # another tenant may get this name
    await server.chains.own(caller).write(events.TenantRemoved(name))
    return Response(status_code=204)


@router.get("/tenants/{name}/quotas", response_model=list[QuotaAnswer], **scoped(Scope.OPERATE))
async def show_quotas_of_tenant(server: Server, name: Name) -> Response:
    await require_tenant(server.database, name)
    return await _quotas(server, name)


@router.put("/tenants/{name}/quotas/{quota}", response_model=list[QuotaAnswer], **scoped(Scope.OPERATE))
async def set_quota(server: Server, caller: Caller, name: Name, quota: Quota, wanted: NewQuota) -> Response:
    await require_tenant(server.database, name)
    await server.chains.own(caller).write(events.QuotaSet(name, quota.value, f"{wanted.value:g}"))
    await set_limit(server.database, name, quota, float(wanted.value), caller.name)
    server.requests.forget(name)
    return await _quotas(server, name)


@router.get("/quotas", response_model=list[QuotaAnswer], **scoped(None))
async def show_quotas(server: Server, caller: Caller) -> Response:
    """What the tenant may have, what of it is used, and who has set it."""
    return await _quotas(server, caller.tenant)


@router.get("/usage", response_model=UsageAnswer, **scoped(None))
async def show_usage(server: Server, caller: Caller, since: Moment = None, until: Moment = None) -> Response:
    """What the tenant has used, by the hour; of today if no time is given, of 32 days at most."""
    now = time.time()
    end = now if until is None else until
    begin = max(start_of_day(now) if since is None else since, end - _MOST_DAYS_SECONDS)
    async with server.database.transaction(caller.tenant) as transaction:
        rows = await usage_by_hour(transaction, caller.tenant, begin, end)
    total: Counter[str] = Counter()
    for _, name, amount in rows:
        total[name] += amount  # pyright: ignore[reportArgumentType]  # a Counter adds floats as well
    hours = [{"hour": hour, "name": name, "amount": amount} for hour, name, amount in rows]
    return PlainJson({"since": begin, "until": end, "total": dict(total), "hours": hours})


@router.get("/secrets", response_model=list[SecretAnswer], **scoped(Scope.POLICIES))
async def show_secrets(server: Server, caller: Caller) -> Response:
    """Their names. Values are never read back."""
    found = await list_secrets(server.database, caller.tenant)
    return PlainJson([{"name": each.name, "set_by": each.author, "set_at": each.created} for each in found])


@router.put("/secrets/{name}", **scoped(Scope.POLICIES, 204))
async def set_secret(server: Server, caller: Caller, name: Name, wanted: NewSecret) -> Response:
    await put_secret(server.database, server.sealing, caller.tenant, name, wanted.value, caller.name)
    await server.chains.own(caller).write(events.SecretSet(name))
    return Response(status_code=204)


@router.delete("/secrets/{name}", **scoped(Scope.POLICIES, 204))
async def drop_secret(server: Server, caller: Caller, name: Name) -> Response:
    if not await remove_secret(server.database, caller.tenant, name):
        raise NotFoundError("secret")
    await server.chains.own(caller).write(events.SecretRemoved(name))
    return Response(status_code=204)


async def _quotas(server: RunningServer, tenant: str) -> Response:
    states = await read_state(server.database, tenant, time.time())
    return PlainJson(
        [
            {
                "quota": state.quota.value,
                "limit": state.limit.value,
                "used": state.used,
                "set_by": state.limit.author,
                "resets_at": state.resets,
            }
            for state in states
        ]
    )
