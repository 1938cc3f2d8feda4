"""`filesystem.Filesystem`: entries of folders; makes, moves and removes them."""

from __future__ import annotations

import errno
import posixpath
import stat as modes
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from fumehood.errors import FumehoodError, UsageError
from fumehood.guest.contract.limits import SANDBOX_UID
from fumehood.sandbox.files import FileEntry, FileKind
from fumehood.server.e2b.bodies import read_json
from fumehood.server.e2b.fields import field
from fumehood.server.e2b.paths import inner_path, outer_path
from fumehood.server.e2b.sandboxes import E2bSandbox

_TYPES = {FileKind.FILE: "FILE_TYPE_FILE", FileKind.FOLDER: "FILE_TYPE_DIRECTORY", FileKind.LINK: "FILE_TYPE_SYMLINK"}
_BITS = {FileKind.FOLDER: modes.S_IFDIR, FileKind.LINK: modes.S_IFLNK}
_USERS = {SANDBOX_UID: "user", 0: "root"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799
_DEEPEST = 32
_MOST_ENTRIES = 20_000


def entry_of(entry: FileEntry, path: str, *, link: FileEntry | None = None) -> dict[str, Any]:
    """`link` is the entry of the name itself, where that leads to `entry`."""
    shown = link or entry
    described: dict[str, Any] = {
        "name": posixpath.basename(path) or "/",
        "type": _TYPES.get(entry.kind, "FILE_TYPE_UNSPECIFIED"),
        "path": outer_path(path),
        "size": str(entry.size),
        "mode": entry.mode,
        "permissions": modes.filemode(entry.mode | _BITS.get(entry.kind, modes.S_IFREG)),
        "owner": _USERS.get(entry.uid, str(entry.uid)),
        "group": _USERS.get(entry.gid, str(entry.gid)),
        "modifiedTime": _timestamp(entry.modified_ns),
    }
    if shown.kind is FileKind.LINK:
        described["symlinkTarget"] = outer_path(posixpath.join(posixpath.dirname(path), shown.target or ""))
    return described


def _timestamp(nanoseconds: int) -> str:
    """As in JSON of protocol buffers, which know the years 1 to 9999: a program can set a file's time to anything."""
    seconds = min(max(nanoseconds // 10**9, _FIRST_SECOND), _LAST_SECOND)
    return f"{(_EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None).isoformat()}.{nanoseconds % 10**9:09}Z"


async def describe(sandbox: E2bSandbox, path: str) -> dict[str, Any]:
    link = await sandbox.box.files.stat(path)
    if link.kind is not FileKind.LINK:
        return entry_of(link, path)
    try:
        return entry_of(await sandbox.box.files.stat(path, follow=True), path, link=link)
    except FumehoodError:
        return entry_of(link, path)  # it leads nowhere, or out of the workspace


async def _path_of(request: Request) -> tuple[Mapping[str, Any], str]:
    message = await read_json(request)
    return message, inner_path(field(message, "path", str, ""))


async def stat(sandbox: E2bSandbox, request: Request) -> Response:
    _, path = await _path_of(request)
    return JSONResponse({"entry": await describe(sandbox, path)})


async def list_dir(sandbox: E2bSandbox, request: Request) -> Response:
    message, path = await _path_of(request)
    depth = field(message, "depth", int, 0) or 1
    if not 0 < depth <= _DEEPEST:
        raise UsageError(f"depth {depth} must be from 1 to {_DEEPEST}")
    if (await sandbox.box.files.stat(path, follow=True)).kind is not FileKind.FOLDER:
        raise UsageError(f"{outer_path(path)} is not a directory")
    entries: list[dict[str, Any]] = []
    await _list(sandbox, path, depth, entries)
    return JSONResponse({"entries": entries})


async def _list(sandbox: E2bSandbox, path: str, depth: int, entries: list[dict[str, Any]]) -> None:
    for entry in await sandbox.box.files.list(path):
        place = posixpath.join(path, entry.name)
        entries.append(entry_of(entry, place))
        if len(entries) > _MOST_ENTRIES:
            raise UsageError(f"there are more than {_MOST_ENTRIES} entries; list a folder further down")
        if entry.kind is FileKind.FOLDER and depth > 1:
            await _list(sandbox, place, depth - 1, entries)


async def make_dir(sandbox: E2bSandbox, request: Request) -> Response:
    _, path = await _path_of(request)
    parent = posixpath.dirname(path)
    if parent not in ("/", path):
        await sandbox.box.files.mkdir(parent)
    try:
        await sandbox.box.files.mkdir(path, parents=False)
    except UsageError as error:
        error.errno = errno.EEXIST if "always exists" in str(error) else error.errno
        raise
    return JSONResponse({"entry": await describe(sandbox, path)})


async def move(sandbox: E2bSandbox, request: Request) -> Response:
    message = await read_json(request)
    source, target = (inner_path(field(message, name, str)) for name in ("source", "destination"))
    await sandbox.box.files.rename(source, target)
    return JSONResponse({"entry": await describe(sandbox, target)})


async def remove(sandbox: E2bSandbox, request: Request) -> Response:
    """What is not there is removed already."""
    _, path = await _path_of(request)
    try:
        await sandbox.box.files.remove(path, recursive=True)
    except FumehoodError as error:
        if error.errno != errno.ENOENT:
            raise
    return JSONResponse({})
