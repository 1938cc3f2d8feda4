"""`/files`: content of files in and out, in chunks; by token, or by an address that its holder has signed."""

from __future__ import annotations

import errno
import posixpath
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from fumehood.errors import UsageError
from fumehood.server.e2b.access import Endpoint, check_user, place_of, sandbox_of
from fumehood.server.e2b.bodies import chunks_of, unpacked
from fumehood.server.e2b.errors import BodyError, CallFailure, NotHereError, failure_of, gone
from fumehood.server.e2b.forms import FormFiles
from fumehood.server.e2b.paths import inner_path, outer_path
from fumehood.server.e2b.sandboxes import E2bSandbox, E2bSandboxes
from fumehood.server.sandboxes.transfers import begin_transfer

_TOO_LARGE, _NO_ROOM = 413, 507
_MULTIPART_HEADERS = 64 * 1024
_METADATA = "x-metadata-"


def files_call(sandboxes: E2bSandboxes) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        operation = "read" if request.method in ("GET", "HEAD") else "write"
        sandbox = sandbox_of(sandboxes, request) or _signed(sandboxes, request, operation)
        if sandbox is None:
            return gone()
        try:
            check_user(request)
            with sandbox.in_use():
                return await (_read if operation == "read" else _write)(sandbox, request)
        except Exception as error:
            failure = failure_of(error)
            is_full = failure.status == _TOO_LARGE and operation == "write"
            return (CallFailure(failure.code, _NO_ROOM, failure.message) if is_full else failure).as_rest()

    return endpoint


def _signed(sandboxes: E2bSandboxes, request: Request, operation: str) -> E2bSandbox | None:
    """An address that names no sandbox, as when all have one host, is looked for among those that it could be of."""
    query = request.query_params
    signature = query.get("signature", "")
    if not signature:
        return None
    details = (query.get("path", ""), operation, query.get("username", ""), query.get("signature_expiration", ""))
    named = sandboxes.find_open(place_of(request)[0])
    for sandbox in [named] if named else sandboxes.all_open():
        if sandbox.has_signed(signature, *details):
            return sandbox
    return None


async def _read(sandbox: E2bSandbox, request: Request) -> Response:
    path = inner_path(request.query_params.get("path", ""))
    chunks = await begin_transfer(sandbox.opened, sandbox.box.files.streams.read(path))
    entry = posixpath.basename(path)
    headers = {"Content-Disposition": f"inline; filename*=utf-8''{_quoted(entry)}", "X-Content-Type-Options": "nosniff"}
    return StreamingResponse(chunks, media_type="application/octet-stream", headers=headers)


def _quoted(name: str) -> str:
    from urllib.parse import quote

    return quote(name, safe="", errors="surrogateescape")


async def _write(sandbox: E2bSandbox, request: Request) -> Response:
    if any(name.startswith(_METADATA) for name in request.headers):
        raise NotHereError("metadata of files is not kept; write it to a file of its own")
    if request.headers.get("content-type", "").startswith("multipart/form-data"):
        return JSONResponse(await _write_form(sandbox, request))
    path = request.query_params.get("path", "")
    limit = sandbox.box.policy.workspace_bytes
    chunks = chunks_of(request, limit)
    match request.headers.get("content-encoding", "identity").lower():
        case "identity":
            pass
        case "gzip":
            chunks = unpacked(chunks, limit)
        case encoding:
            raise BodyError("unimplemented", f"bodies in {encoding!r} are not read here; send them as they are")
    async with aclosing(chunks):
        return JSONResponse([await _store(sandbox, path, chunks)])


async def _write_form(sandbox: E2bSandbox, request: Request) -> list[dict[str, Any]]:
    """Several files, each with its path as its name; one can have it in the query."""
    if request.headers.get("content-encoding", "identity") != "identity":
        raise BodyError("unimplemented", "a compressed form is not read here; send it as it is")
    limit = sandbox.box.policy.workspace_bytes + _MULTIPART_HEADERS
    files = FormFiles(request.headers["content-type"], chunks_of(request, limit))
    path = request.query_params.get("path")
    stored: list[dict[str, Any]] = []
    async with aclosing(aiter(files)) as each:
        async for name, chunks in each:
            if path and stored:
                raise UsageError("the query has one path, and the form more than one file")
            async with aclosing(chunks):
                stored.append(await _store(sandbox, path or name, chunks))
    return stored


async def _store(sandbox: E2bSandbox, path: str, chunks: AsyncIterator[bytes]) -> dict[str, Any]:
    if not path:
        raise UsageError("path is missing")
    place = inner_path(path)
    try:
        await sandbox.box.files.streams.write(place, chunks)
    except UsageError as error:
        if error.errno == errno.EISDIR:
            raise UsageError(f"{outer_path(place)} is a directory") from None
        raise
    return {"name": posixpath.basename(place), "type": "file", "path": outer_path(place)}
