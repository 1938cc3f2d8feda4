"""Files of a sandbox over HTTP, as far as its policy lets them in and out."""

from __future__ import annotations

import re
from base64 import b64encode
from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Header, Path, Request
from starlette.responses import Response, StreamingResponse

from fumehood.server.api.models import FileList, Id, NewFolder
from fumehood.server.api.problems import PlainJson
from fumehood.server.api.routes import Caller, Server, scoped
from fumehood.server.api.sandboxes import in_use
from fumehood.server.identity.principals import Scope
from fumehood.server.sandboxes.transfers import begin_transfer

_BYTES = "application/octet-stream"
_WANTED_DIGEST = re.compile(r"(?:^|,)\s*sha-256\s*=\s*[1-9]")
_CONTENT = {"content": {_BYTES: {"schema": {"type": "string", "format": "binary"}}}}
FilePath = Annotated[str, Path(max_length=4096)]
router = APIRouter(tags=["files"])


@router.get("/sandboxes/{id}/list", response_model=FileList, **scoped(Scope.FILES))
async def list_folder(server: Server, caller: Caller, id: Id, path: str = "") -> Response:
    """What is in a folder of the workspace."""
    with in_use(await server.registry.find(caller.tenant, id)) as opened:
        entries = await opened.box.files.list(path)
    return PlainJson({"entries": [asdict(entry) for entry in entries]})


@router.post("/sandboxes/{id}/folders", **scoped(Scope.FILES, 204))
async def make_folder(server: Server, caller: Caller, id: Id, wanted: NewFolder) -> Response:
    with in_use(await server.registry.find(caller.tenant, id)) as opened:
        await opened.box.files.mkdir(wanted.path, parents=wanted.parents)
    return Response(status_code=204)


@router.get("/sandboxes/{id}/files/{path:path}", response_class=Response, **scoped(Scope.FILES))
async def read_file(
    server: Server, caller: Caller, id: Id, path: FilePath, want_repr_digest: Annotated[str, Header()] = ""
) -> Response:
    """The content of a file that the policy's `filesystem.outputs` names.

    `Repr-Digest` has its SHA-256 if it is small, or `Want-Repr-Digest: sha-256=1` asks for that: then it is read twice.
    """
    headers = {"X-Content-Type-Options": "nosniff"}

    def describe(size: int, sha256: str | None) -> None:
        headers["Content-Length"] = str(size)
        if sha256 is not None:
            headers["Repr-Digest"] = f"sha-256=:{b64encode(bytes.fromhex(sha256)).decode()}:"

    wants_digest = _WANTED_DIGEST.search(want_repr_digest) is not None
    with in_use(await server.registry.find(caller.tenant, id)) as opened:
        content = opened.box.files.streams.read(path, describe, digest_first=wants_digest)
        chunks = await begin_transfer(opened, content)
    return StreamingResponse(chunks, media_type=_BYTES, headers=headers)


@router.put("/sandboxes/{id}/files/{path:path}", **scoped(Scope.FILES, 204, requestBody=_CONTENT))
async def write_file(
    server: Server, caller: Caller, id: Id, path: FilePath, request: Request, executable: bool = False
) -> Response:
    """Put a file in place at once; folders on the way are made. The body is its content."""
    opened = await server.registry.find(caller.tenant, id)
    content = await request.body()
    with in_use(opened):
        await opened.box.files.write(path, content, executable=executable)
    return Response(status_code=204)


@router.delete("/sandboxes/{id}/files/{path:path}", **scoped(Scope.FILES, 204))
async def remove_file(server: Server, caller: Caller, id: Id, path: FilePath, recursive: bool = False) -> Response:
    with in_use(await server.registry.find(caller.tenant, id)) as opened:
        await opened.box.files.remove(path, recursive=recursive)
    return Response(status_code=204)
