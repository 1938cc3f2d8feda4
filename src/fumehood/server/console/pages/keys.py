"""Keys of the viewer's own tenant: which there are, a new one, and the end of one. Done by the functions of the API."""

from __future__ import annotations

import json
import time

from pydantic import ValidationError
from starlette.responses import Response

from fumehood.errors import UsageError
from fumehood.server.api.keys import make_own_key, revoke_own_key
from fumehood.server.api.models import NewKey
from fumehood.server.api.problems import NotFoundError
from fumehood.server.console.page_request import NoSuchPageError, PageRequest
from fumehood.server.console.routes import ConsoleRoute, PageModule
from fumehood.server.console.tenant_pages import server_of
from fumehood.server.identity.keys import list_keys
from fumehood.server.identity.principals import OF_TENANTS, Scope

_SCOPES = (Scope.KEYS,)
_SCOPE_FIELD = "scope-"
_MEANINGS = {
    Scope.RUN: "open sandboxes, run code in them",
    Scope.FILES: "read and write files in them",
    Scope.APPROVE: "answer calls that wait for an approval",
    Scope.AUDIT: "read the tenant's audit log",
    Scope.POLICIES: "change policies and secrets",
    Scope.KEYS: "make and revoke keys",
}


async def show(page: PageRequest) -> Response:
    return await _page(page, "")


async def create(page: PageRequest) -> Response:
    """The key is in this answer and nowhere else: to load the page again shows it no more."""
    answer = await make_own_key(server_of(page), page.principal, new_key(page))
    return await _page(page, json.loads(bytes(answer.body))["key"])


async def revoke(page: PageRequest) -> Response:
    try:
        await revoke_own_key(server_of(page), page.principal, page.path("id"))
    except NotFoundError:
        raise NoSuchPageError from None
    return page.go("/keys")


def new_key(page: PageRequest) -> NewKey:
    scopes = [name.removeprefix(_SCOPE_FIELD) for name in page.form if name.startswith(_SCOPE_FIELD)]
    wanted = {
        "name": page.form.get("name", "").strip(),
        "scopes": scopes,
        "days": page.form.get("days", "").strip() or None,
        "networks": page.form.get("networks", "").split(),
    }
    try:
        return NewKey.model_validate(wanted)
    except ValidationError as error:
        first = error.errors()[0]
        raise UsageError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None


async def _page(page: PageRequest, key: str) -> Response:
    keys = await list_keys(server_of(page).database, page.principal.tenant)
    return await page.page(
        "keys.html",
        keys=sorted(keys, key=lambda each: (each.revoked is not None, -each.created)),
        new_key=key,
        scopes=[scope.value for scope in OF_TENANTS if page.may(scope)],
        meanings=_MEANINGS,
        own=page.principal.name.removeprefix("key:"),
        now=time.time(),
    )


MODULE = PageModule(
    (
        ConsoleRoute("/keys", show, _SCOPES, nav="Keys", key="y"),
        ConsoleRoute("/keys", create, _SCOPES, "POST"),
        ConsoleRoute("/keys/{id}/revoke", revoke, _SCOPES, "POST"),
    ),
    {},
)
