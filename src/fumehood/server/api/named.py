"""Named sandboxes and snapshots of a tenant over HTTP, while they are not open. The channel opens them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Annotated, TypeVar

import anyio.to_thread
from fastapi import APIRouter, Header, Query, Request
from starlette.responses import Response

from fumehood.errors import UsageError
from fumehood.policy import Policy, deny_all
from fumehood.remote.named import POLICY_HEADER, SKIPPED_HEADER
from fumehood.remote.policies import pack_policy
from fumehood.sandbox.named import NamedSandboxes
from fumehood.server.api.archives import ArchiveResponse
from fumehood.server.api.models import (
    KeptSnapshot,
    Label,
    MadeSnapshot,
    Name,
    NamedAnswer,
    NewForks,
    NewNamed,
    NewSnapshot,
)
from fumehood.server.api.problems import NotFoundError, PlainJson
from fumehood.server.api.routes import Caller, RunningServer, Server, scoped
from fumehood.server.identity.principals import ForbiddenError, Principal, Scope
from fumehood.server.sandboxes.requested_opening import find_wanted_policy
from fumehood.snapshots import NamedSandbox

T = TypeVar("T")
_TAR = "application/x-tar"
_ARCHIVE = {"content": {_TAR: {"schema": {"type": "string", "format": "binary"}}}}
_MOST_SKIPPED_BYTES = 4096
router = APIRouter(tags=["named sandboxes"])


@router.get("/named-sandboxes", response_model=list[NamedAnswer], **scoped(Scope.RUN))
async def list_named(server: Server, caller: Caller) -> Response:
    named = await _named(server, caller)
    return PlainJson([_described(record) for record in await _in_thread(named.sandboxes)])


@router.post("/named-sandboxes", response_model=NamedAnswer, **scoped(Scope.RUN, 201))
async def make_named(server: Server, caller: Caller, wanted: NewNamed) -> Response:
    """Make one: empty, or with the files of a snapshot. Without a policy everything is denied in it."""
    named = await _named(server, caller)
    policy = await _policy(server, caller, wanted.policy or wanted.document)
    if wanted.snapshot is None:
        record = await _in_thread(partial(named.create_empty, wanted.name, policy))
    else:
        record = await _in_thread(partial(named.create_from_snapshot, wanted.name, policy, wanted.snapshot))
    return PlainJson(_described(record), 201)


@router.get("/named-sandboxes/{name}", response_model=NamedAnswer, **scoped(Scope.RUN))
async def show_named(server: Server, caller: Caller, name: Name) -> Response:
    named = await _with(server, caller, name)
    return PlainJson(_described(await _in_thread(partial(named.find, name))))


@router.get("/named-sandboxes/{name}/entries", **scoped(Scope.RUN))
async def list_entries(server: Server, caller: Caller, name: Name) -> Response:
    """What is in its workspace: names, sizes and digests."""
    named = await _with(server, caller, name)
    return PlainJson([asdict(entry) for entry in await _in_thread(partial(named.entries, name))])


@router.delete("/named-sandboxes/{name}", **scoped(Scope.RUN, 204))
async def remove_named(server: Server, caller: Caller, name: Name) -> Response:
    """One that is in use is 409."""
    named = await _with(server, caller, name)
    await _in_thread(partial(named.remove, name))
    return Response(status_code=204)


@router.post("/named-sandboxes/{name}/forks", response_model=list[NamedAnswer], **scoped(Scope.RUN, 201))
async def fork_named(server: Server, caller: Caller, name: Name, wanted: NewForks) -> Response:
    """Copies of its last state, which share on disk what does not change."""
    named = await _with(server, caller, name)
    copies = await _in_thread(partial(named.fork, name, wanted.names))
    return PlainJson([_described(record) for record in copies], 201)


@router.post("/named-sandboxes/{name}/snapshots", response_model=MadeSnapshot, **scoped(Scope.RUN, 201))
async def snapshot_named(server: Server, caller: Caller, name: Name, wanted: NewSnapshot) -> Response:
    """Keep its last state."""
    named = await _with(server, caller, name)
    return PlainJson(asdict(await _in_thread(partial(named.snapshot, name, wanted.name))), 201)


@router.get("/named-sandboxes/{name}/archive", response_class=Response, **scoped(Scope.FILES))
async def export_named(server: Server, caller: Caller, name: Name, everything: bool = False) -> Response:
    """A tar of the files that its policy's `filesystem.outputs` names; `everything` takes the scope `policies`."""
    if everything and not caller.may(Scope.POLICIES):
        raise ForbiddenError(Scope.POLICIES)
    named = await _with(server, caller, name)
    export = partial(named.export, name, f"client {caller.name}", everything=everything)
    outgoing = await server.archives.begin_sending(caller.tenant, export)
    told = json.dumps(outgoing.skipped)
    headers = {SKIPPED_HEADER: told if len(told) <= _MOST_SKIPPED_BYTES else json.dumps(["(very many links)"])}
    return ArchiveResponse(outgoing, media_type=_TAR, headers=headers)


@router.put("/named-sandboxes/{name}/archive", response_model=NamedAnswer, **scoped(Scope.FILES, requestBody=_ARCHIVE))
async def import_named(
    server: Server,
    caller: Caller,
    name: Name,
    request: Request,
    policy: Annotated[str | None, Query(max_length=256)] = None,
    source: Annotated[Label, Query()] = "upload",
    document: Annotated[str | None, Header(alias=POLICY_HEADER)] = None,
) -> Response:
    """Make a new one of a tar, also with gzip. Links or names that lead out, devices and set-uid bits are refused."""
    if not caller.may(Scope.RUN):
        raise ForbiddenError(Scope.RUN)
    named = await _named(server, caller)
    chosen = await _policy(server, caller, policy or _read_document(document))
    create = partial(named.create_from_archive, name, chosen)
    record = await server.archives.receive(caller.tenant, request, lambda stream: create(stream, source))
    return PlainJson(_described(record))


@router.get("/snapshots", response_model=list[KeptSnapshot], **scoped(Scope.RUN))
async def list_snapshots(server: Server, caller: Caller) -> Response:
    named = await _named(server, caller)
    return PlainJson([record.model_dump(mode="json") for record in await _in_thread(named.snapshots)])


@router.delete("/snapshots/{name}", **scoped(Scope.RUN, 204))
async def remove_snapshot(server: Server, caller: Caller, name: Name) -> Response:
    """By its name, its id, or the beginning of its id."""
    named = await _named(server, caller)
    try:
        await _in_thread(partial(named.remove_snapshot, name))
    except UsageError:
        raise NotFoundError("snapshot") from None
    return Response(status_code=204)


async def _named(server: RunningServer, caller: Principal) -> NamedSandboxes:
    return NamedSandboxes(server.chains.trail_of(caller), await server.tenancy.store_of(caller.tenant))


async def _with(server: RunningServer, caller: Principal, name: str) -> NamedSandboxes:
    """NotFoundError if the tenant has none of this name, whatever other tenants have."""
    named = await _named(server, caller)
    if not named.store.has(name):
        raise NotFoundError("named sandbox")
    return named


async def _policy(server: RunningServer, caller: Principal, wanted: object) -> Policy:
    given = pack_policy(deny_all()) if wanted is None else wanted
    policy = (await find_wanted_policy(server.database, caller, given))[1]
    return policy.override({"strict": True}) if server.settings.strict else policy


def _read_document(encoded: str | None) -> object:
    if encoded is None:
        return None
    try:
        return json.loads(base64.b64decode(encoded, validate=True))
    except ValueError:
        raise UsageError(f"{POLICY_HEADER} is not a policy as a client packs it; use ?policy=NAME") from None


async def _in_thread(work: Callable[[], T]) -> T:
    return await anyio.to_thread.run_sync(work)


def _described(record: NamedSandbox) -> dict[str, object]:
    return record.model_dump(mode="json")
