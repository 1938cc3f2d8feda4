"""Keys over HTTP: of the caller's own tenant, and for operators of any."""

from __future__ import annotations

import time

from fastapi import APIRouter
from starlette.responses import Response

from fumehood.server import events
from fumehood.server.api.models import Id, KeyAnswer, Name, NewKey
from fumehood.server.api.problems import NotFoundError, PlainJson
from fumehood.server.api.routes import Caller, RunningServer, Server, scoped
from fumehood.server.identity.keys import KeyDetails, check_heir, create_key, family_of, list_keys, revoke_key
from fumehood.server.identity.principals import ForbiddenError, Principal, Scope
from fumehood.server.tenants.tenants import require_tenant

router = APIRouter(tags=["keys"])


@router.get("/keys", response_model=list[KeyAnswer], **scoped(Scope.KEYS))
async def list_own_keys(server: Server, caller: Caller) -> Response:
    return await _list(server, caller.tenant)


@router.post("/keys", response_model=KeyAnswer, **scoped(Scope.KEYS, 201))
async def make_own_key(server: Server, caller: Caller, wanted: NewKey) -> Response:
    """A key of the tenant, which is shown this once.

    It cannot have a scope that the caller does not have, nor be valid for longer or elsewhere than the caller's key.
    """
    for scope in wanted.scopes:
        if not caller.may(scope):
            raise ForbiddenError(scope)
    await check_heir(server.database, caller, _end(wanted), wanted.networks)
    family = await family_of(server.database, caller.tenant, caller.name)
    return await _make(server, caller, caller.tenant, wanted, family)


@router.delete("/keys/{id}", **scoped(Scope.KEYS, 204))
async def revoke_own_key(server: Server, caller: Caller, id: Id) -> Response:
    return await _revoke(server, caller, caller.tenant, id)


@router.get("/tenants/{name}/keys", response_model=list[KeyAnswer], **scoped(Scope.OPERATE))
async def list_keys_of_tenant(server: Server, name: Name) -> Response:
    await require_tenant(server.database, name)
    return await _list(server, name)


@router.post("/tenants/{name}/keys", response_model=KeyAnswer, **scoped(Scope.OPERATE, 201))
async def make_key_of_tenant(server: Server, caller: Caller, name: Name, wanted: NewKey) -> Response:
    """With any scope, `operate` included."""
    await require_tenant(server.database, name)
    return await _make(server, caller, name, wanted)


@router.delete("/tenants/{name}/keys/{id}", **scoped(Scope.OPERATE, 204))
async def revoke_key_of_tenant(server: Server, caller: Caller, name: Name, id: Id) -> Response:
    await require_tenant(server.database, name)
    return await _revoke(server, caller, name, id)


async def _list(server: RunningServer, tenant: str) -> Response:
    return PlainJson([describe_key(details) for details in await list_keys(server.database, tenant)])


async def _make(
    server: RunningServer, caller: Principal, tenant: str, wanted: NewKey, family: str | None = None
) -> Response:
    key, details = await create_key(
        *(server.database, tenant, wanted.name, wanted.scopes),
        expires=_end(wanted),
        networks=wanted.networks,
        family=family,
    )
    # A key whose record cannot be written is never shown, and so is of no use.
    await server.chains.own(caller).write(key_created(tenant, details))
    return PlainJson(describe_key(details) | {"key": key}, 201)


def _end(wanted: NewKey) -> float | None:
    return time.time() + wanted.days * 86400 if wanted.days is not None else None


async def _revoke(server: RunningServer, caller: Principal, tenant: str, identifier: str) -> Response:
    if not await revoke_key(server.database, tenant, identifier):
        raise NotFoundError("key that is in force")
    await server.chains.own(caller).write(events.KeyRevoked(tenant, identifier))
    return Response(status_code=204)


def key_created(tenant: str, details: KeyDetails) -> events.KeyCreated:
    expires = None if details.expires is None else int(details.expires)
    return events.KeyCreated(tenant, details.id, details.name, details.scopes, details.networks, expires)


def describe_key(details: KeyDetails) -> dict[str, object]:
    return {
        "id": details.id,
        "name": details.name,
        "scopes": list(details.scopes),
        "networks": list(details.networks),
        "created_at": details.created,
        "expires_at": details.expires,
        "revoked_at": details.revoked,
    }
