"""Files of a client's that its policy mounts: sent along before the sandbox is opened, through the channel."""

from __future__ import annotations

import hashlib

from fastapi import APIRouter, Request
from starlette.responses import Response

from fumehood.errors import UsageError
from fumehood.server import events
from fumehood.server.api.models import SentMountAnswer
from fumehood.server.api.problems import PlainJson
from fumehood.server.api.routes import Caller, Server, scoped
from fumehood.server.identity.principals import Scope

_CONTENT = {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}
router = APIRouter(tags=["files"])


@router.post("/mounts", response_model=SentMountAnswer, **scoped(Scope.FILES, 201, requestBody=_CONTENT))
async def send_mount(server: Server, caller: Caller, request: Request) -> Response:
    """Copies of files, for one sandbox that the same key opens within a minute. The client packs them."""
    if server.fleet is not None:
        raise UsageError("sandboxes of this server are on workers, which cannot mount what is sent along; upload files")
    packed = await request.body()
    name, mount = await server.registry.mounts.keep(caller, packed)
    sent = events.MountSent(name, mount.files, len(packed), hashlib.sha256(packed).hexdigest())
    await server.chains.trail_of(caller).write(sent)
    return PlainJson({"id": name, "entries": mount.files}, 201)
