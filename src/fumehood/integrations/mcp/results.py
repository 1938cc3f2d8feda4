"""What a call gave, in the protocol's words: text for the model, pictures, links to files, and the facts as data."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote, unquote

from mcp_types import CallToolResult, ContentBlock, ImageContent, Resource, ResourceLink, TextContent

from fumehood.errors import DeniedError, UsageError
from fumehood.integrations.mcp.place import Place
from fumehood.policy.quantities import MIB
from fumehood.results import Denial, RunResult
from fumehood.tools import ToolResult, ToolStatus
from fumehood.tools.filters import Pipeline

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

OUTPUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "status": {
            "type": "string",
            "enum": [status.value for status in ToolStatus],
            "description": "denied: the policy or a person said no, and nothing was done",
        },
        "text": {"type": "string", "description": "What happened, in words"},
        "run": {
            "type": "object",
            "description": "Of a program that was run",
            "properties": {
                "id": {"type": "string"},
                "status": {"type": "string"},
                "cause": {"type": "string", "description": "What ended it: exit, wall_time, memory, ..."},
                "exit_code": {"type": "integer"},
                "duration_ms": {"type": "number"},
                "truncated": {"type": "boolean"},
            },
        },
        "files": {
            "type": "array",
            "description": "What it made that may be read as a resource",
            "items": {
                "type": "object",
                "properties": {
                    "uri": {"type": "string"},
                    "path": {"type": "string"},
                    "bytes": {"type": "integer"},
                    "media_type": {"type": "string"},
                },
            },
        },
        "denials": {"type": "array", "description": "What the policy refused it", "items": {"type": "string"}},
    },
    "required": ["status", "text"],
}


async def as_content(result: ToolResult, files: Sequence[Resource], place: Place) -> CallToolResult:
    """Whatever a program could have chosen goes through the filters, as the text has already."""
    text = result.text.encode("utf-8", "replace").decode()  # names of files can hold what JSON cannot
    content: list[ContentBlock] = [TextContent(text=text)]
    data: dict[str, Any] = {"status": result.status.value, "text": text}
    content += [_link(file) for file in files[:_MOST_LINKS]]
    if files:
        data["files"] = [_told_file(file) for file in files]
    if result.run is not None:
        content += await _pictures(result.run, files, place)
        data |= _facts(result.run, place.filters)
    return CallToolResult(content=content, structured_content=data, is_error=not result.ok)


def refusal(text: str, status: ToolStatus = ToolStatus.ERROR) -> CallToolResult:
    """Of something that went wrong before anything was done."""
    text = text.encode("utf-8", "replace").decode()
    return CallToolResult(
        content=[TextContent(text=text)], structured_content={"status": status.value, "text": text}, is_error=True
    )


def uri_of(path: str) -> str:
    return _PREFIX + quote(path, errors="surrogateescape")


def path_of(uri: str) -> str | None:
    """None for what is no file of ours."""
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
        facts["denials"] = [_told(denial, filters) for denial in run.denials]
    return facts


def _told(denial: Denial, filters: Pipeline) -> str:
    return filters.sift(str(denial)).text


def is_plain(path: str, filters: Pipeline) -> bool:
    """A name that the filters would change is not told, since the file would not be found by what is left of it."""
    return filters.sift(path).text == path and path.isprintable()


def _link(file: Resource) -> ResourceLink:
    return ResourceLink(uri=file.uri, name=file.name, mime_type=file.mime_type, size=file.size)


def _told_file(file: Resource) -> dict[str, object]:
    return {"uri": file.uri, "path": file.name, "bytes": file.size, "media_type": file.mime_type}


async def _pictures(run: RunResult, files: Sequence[Resource], place: Place) -> list[ImageContent]:
    """What was shown, and then files. Bounded, since a model reads all of it."""
    found = [(kind, data) for display in run.displays for kind, data in display.data.items() if isinstance(data, bytes)]
    pictures = [_picture(kind, data) for kind, data in found if _is_picture(kind, data)][:_MOST_PICTURES]
    left = _MOST_PICTURE_BYTES - sum(len(picture.data) for picture in pictures)
    for file in files:
        kind = file.mime_type or ""
        if kind not in _SIGNATURES or (file.size or 0) > left or len(pictures) >= _MOST_PICTURES:
            continue
        with suppress(UsageError, DeniedError):  # it is gone already, or another one by now
            data = await place.sandbox.read(file.name, max_bytes=left)
            if _is_picture(kind, data):
                pictures.append(_picture(kind, data))
                left -= len(data)
    return pictures


def _is_picture(kind: str, data: bytes) -> bool:
    """Something else with the name of a picture would make the model's provider refuse the whole conversation."""
    return data.startswith(_SIGNATURES.get(kind, ())) and len(data) <= _MOST_PICTURE_BYTES


def _picture(kind: str, data: bytes) -> ImageContent:
    return ImageContent(data=base64.b64encode(data).decode(), mime_type=kind)
