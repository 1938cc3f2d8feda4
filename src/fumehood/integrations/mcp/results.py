"""Results of calls as the protocol has them: text for the model, images, links to files, and the facts as data."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote, unquote

from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    ImageContent,
    ReadResourceResult,
    Resource,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from fumehood.errors import DeniedError, FumehoodError, UsageError
from fumehood.integrations.mcp.clients import ClientSandbox
from fumehood.policy.filesystem import Outputs
from fumehood.policy.quantities import MIB
from fumehood.results import Denial, RunResult
from fumehood.sandbox.files.artifacts import media_type
from fumehood.sandbox.files.paths import sandbox_path
from fumehood.tools import WRITE_FILE, ToolResult, ToolStatus
from fumehood.tools.filters import Direction, Pipeline

SCHEME = "sandbox"
_PREFIX = f"{SCHEME}:///workspace/"
# What models take. Everything else stays a file.
_SIGNATURES = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
    "image/webp": (b"RIFF",),
}
_MOST_PICTURES = 8
_MOST_PICTURE_BYTES = 4 * MIB
_MOST_LINKS = 20
_MOST_RESOURCES = 1000
_MOST_RESOURCE_BYTES = 16 * MIB


async def as_content(result: ToolResult, files: Sequence[Resource], box: ClientSandbox) -> CallToolResult:
    """Whatever a program could have chosen goes through the filters, as the text has already."""
    text = result.text.encode("utf-8", "replace").decode()  # names of files can hold what JSON cannot
    content: list[ContentBlock] = [TextContent(text=text)]
    data: dict[str, Any] = {"status": result.status.value, "text": text}
    content += [_link(file) for file in files[:_MOST_LINKS]]
    if files:
        data["files"] = [_file_facts(file) for file in files]
    if result.run is not None:
        content += await _pictures(result.run, files, box)
        data |= _facts(result.run, box.filters)
    return CallToolResult(content=content, structured_content=data, is_error=not result.ok)


def refusal(text: str, status: ToolStatus = ToolStatus.ERROR) -> CallToolResult:
    """The result of a call that failed before anything was done."""
    text = text.encode("utf-8", "replace").decode()
    return CallToolResult(
        content=[TextContent(text=text)], structured_content={"status": status.value, "text": text}, is_error=True
    )


def uri_of(path: str) -> str:
    return _PREFIX + quote(path, errors="surrogateescape")


def path_of(uri: str) -> str | None:
    """None for an address that is not a file of a workspace."""
    return unquote(uri.removeprefix(_PREFIX), errors="surrogateescape") if uri.startswith(_PREFIX) else None


def _facts(run: RunResult, filters: Pipeline) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "run": {
            "id": run.run_id,
            "status": run.status.value,
            "cause": run.cause.value,
            "exit_code": run.exit_code,
            "duration_ms": round(run.duration_ms, 1),
            "truncated": run.truncated,
        }
    }
    if run.denials:
        facts["denials"] = [_filtered(denial, filters) for denial in run.denials]
    return facts


def _filtered(denial: Denial, filters: Pipeline) -> str:
    return filters.sift(str(denial)).text


def is_plain(path: str, filters: Pipeline) -> bool:
    """False for a name that the filters would change: the file would not be found by what is left of it."""
    return filters.sift(path).text == path and path.isprintable()


def _link(file: Resource) -> ResourceLink:
    return ResourceLink(uri=file.uri, name=file.name, mime_type=file.mime_type, size=file.size)


def _file_facts(file: Resource) -> dict[str, object]:
    return {"uri": file.uri, "path": file.name, "bytes": file.size, "media_type": file.mime_type}


async def _pictures(run: RunResult, files: Sequence[Resource], box: ClientSandbox) -> list[ImageContent]:
    """Displayed images, then image files. Bounded, since a model reads all of it."""
    found = [(kind, data) for display in run.displays for kind, data in display.data.items() if isinstance(data, bytes)]
    pictures = [_picture(kind, data) for kind, data in found if _is_picture(kind, data)][:_MOST_PICTURES]
    left = _MOST_PICTURE_BYTES - sum(len(picture.data) for picture in pictures)
    for file in files:
        kind = file.mime_type or ""
        if kind not in _SIGNATURES or (file.size or 0) > left or len(pictures) >= _MOST_PICTURES:
            continue
        with suppress(UsageError, DeniedError):  # it is gone already, or another one by now
            data = await box.sandbox.files.read(file.name, max_bytes=left)
            if _is_picture(kind, data):
                pictures.append(_picture(kind, data))
                left -= len(data)
    return pictures


def _is_picture(kind: str, data: bytes) -> bool:
    """Something else with the name of a picture would make the model's provider refuse the whole conversation."""
    return data.startswith(_SIGNATURES.get(kind, ())) and len(data) <= _MOST_PICTURE_BYTES


def _picture(kind: str, data: bytes) -> ImageContent:
    return ImageContent(data=base64.b64encode(data).decode(), mime_type=kind)


async def list_artifacts(box: ClientSandbox) -> list[Resource]:
    files = {path: entry for path, entry in (await box.sandbox.files.outputs()).items() if is_plain(path, box.filters)}
    return [_resource(path, entry.size) for path, entry in list(files.items())[:_MOST_RESOURCES]]


async def read_artifact(box: ClientSandbox | None, uri: str) -> ReadResourceResult:
    path = path_of(uri)
    if path is None or box is None:
        raise MCPError(INVALID_PARAMS, f"there is no resource {uri!r}; resources/list has those that there are")
    try:
        data = await box.sandbox.files.read(path, max_bytes=_MOST_RESOURCE_BYTES)
    except FumehoodError as error:
        raise MCPError(INVALID_PARAMS, f"{uri} cannot be read: {error}") from None
    kind = media_type(path)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        blob = base64.b64encode(data).decode()
        return ReadResourceResult(contents=[BlobResourceContents(uri=uri, mime_type=kind, blob=blob)])
    shown = (await box.filters.apply(text, Direction.TOOL_RESULT)).text
    return ReadResourceResult(contents=[TextResourceContents(uri=uri, mime_type=kind, text=shown)])


async def made_files(box: ClientSandbox, tool: str, arguments: dict[str, object], result: ToolResult) -> list[Resource]:
    """The files that a call has made or changed and that clients may read."""
    if result.run is not None:
        files = {item.path: item.size for item in result.run.artifacts}
    elif tool == WRITE_FILE.name and result.ok:
        files = await _written(box, sandbox_path(str(arguments["path"])))
    else:
        return []
    return [_resource(path, size) for path, size in files.items() if is_plain(path, box.filters)]


async def _written(box: ClientSandbox, path: str) -> dict[str, int]:
    """Only what `list_artifacts` has: not a file behind a link."""
    if not Outputs(box.sandbox.policy.filesystem.outputs).match(path):
        return {}
    entry = (await box.sandbox.files.outputs()).get(path)
    return {} if entry is None else {path: entry.size}


def _resource(path: str, size: int) -> Resource:
    return Resource(uri=uri_of(path), name=path, mime_type=media_type(path), size=size)
