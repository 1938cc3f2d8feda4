"""Sandboxes over HTTP: opened, listed, closed. They live until they are closed, unused for long, or expired."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fastapi import APIRouter
from starlette.responses import Response

from fumehood.server.api.models import Id, NewSandbox, SandboxAnswer
from fumehood.server.api.problems import PlainJson
from fumehood.server.api.routes import Caller, RunningServer, Server, scoped
from fumehood.server.identity.principals import Principal, Scope
from fumehood.server.sandboxes import records
from fumehood.server.sandboxes.errors import EndedError, NoSuchSandboxError
from fumehood.server.sandboxes.open_sandbox import OpenSandbox
from fumehood.server.sandboxes.opening import Opening, Times
from fumehood.server.sandboxes.records import SandboxRecord
from fumehood.server.sandboxes.requested_opening import read_opening
from fumehood.server.settings import ServerSettings
from fumehood.server.tenants.tenants import DEFAULT_POLICY

router = APIRouter(tags=["sandboxes"])


@router.post("/sandboxes", response_model=SandboxAnswer, **scoped(Scope.RUN, 201))
async def open_sandbox(server: Server, caller: Caller, wanted: NewSandbox) -> Response:
    """Open a sandbox with a policy of the tenant's catalogue."""
    opening = await _opening(server, caller, wanted)
    opened, token = await server.registry.open(caller, opening, server.chains.trail_of(caller))
    record = await records.find(server.database, caller.tenant, opened.id)
    if record is None:
        raise NoSuchSandboxError
    answer = _described(record) | {"token": token, "enforcement": dict(opened.box.enforcement)}
    return PlainJson(answer, 201, {"Location": f"/v1/sandboxes/{opened.id}"})


@router.get("/sandboxes", response_model=list[SandboxAnswer], **scoped(Scope.RUN))
async def list_sandboxes(server: Server, caller: Caller) -> Response:
    """Those of the tenant that are open, on whatever server."""
    return PlainJson([_described(record) for record in await records.list_open(server.database, caller.tenant)])


@router.get("/sandboxes/{id}", response_model=SandboxAnswer, **scoped(Scope.RUN))
async def show_sandbox(server: Server, caller: Caller, id: Id) -> Response:
    """One of them; for one that has ended, 410 and why, for a day."""
    record = await records.find(server.database, caller.tenant, id)
    if record is None:
        raise NoSuchSandboxError
    if record.ended is not None:
        raise EndedError(record)
    return PlainJson(_described(record))


@router.delete("/sandboxes/{id}", **scoped(Scope.RUN, 204))
async def close_sandbox(server: Server, caller: Caller, id: Id) -> Response:
    """Close it, in whatever state it is; one that has ended stays as it ended."""
    await server.registry.close(caller.tenant, id)
    return Response(status_code=204)


@contextmanager
def in_use(opened: OpenSandbox) -> Iterator[OpenSandbox]:
    """Meanwhile it is not idle."""
    opened.begin_use()
    try:
        yield opened
    finally:
        opened.end_use()


async def _opening(server: RunningServer, caller: Principal, wanted: NewSandbox) -> Opening:
    requested = {
        "policy": wanted.policy or DEFAULT_POLICY,
        "narrow": wanted.resources,
        "offline": wanted.offline,
        "metadata": wanted.metadata,
        "session": wanted.session,
        "keep_tmp": wanted.keep_tmp,
        "times": {name: value for name in ("lifetime", "idle") if (value := getattr(wanted, name)) is not None},
    }
    return await read_opening(server.database, caller, requested, longest_times(server.settings), _unseen)


def _unseen(line: str) -> None:
    """The progress of an installation, which an answer of HTTP has no place for."""


def longest_times(settings: ServerSettings) -> Times:
    given = settings.sandboxes
    return Times(given.lifetime, given.idle, given.linger)


def _described(record: SandboxRecord) -> dict[str, object]:
    return {
        "id": record.id,
        "policy": record.policy,
        "policy_digest": record.policy_digest,
        "metadata": dict(record.metadata),
        "opened_at": record.opened,
        "expires_at": record.expires,
        "opened_by": record.principal,
    }
