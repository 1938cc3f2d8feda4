"""The files that the policy lets out, as resources: listed as they are now, read through the filters."""

from __future__ import annotations

import base64

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, BlobResourceContents, ReadResourceResult, Resource, TextResourceContents

from fumehood.errors import FumehoodError
from fumehood.integrations.mcp.place import Place
from fumehood.integrations.mcp.results import is_plain, path_of, uri_of
from fumehood.policy.outputs import Outputs
from fumehood.policy.quantities import MIB
from fumehood.sandbox.files.artifacts import media_type
from fumehood.sandbox.files.paths import sandbox_path
from fumehood.tools import WRITE_FILE, ToolResult
from fumehood.tools.filters import Direction

MOST_LISTED = 1000
MOST_BYTES = 16 * MIB


async def list_artifacts(place: Place) -> list[Resource]:
    files = {path: entry for path, entry in (await place.sandbox.outputs()).items() if is_plain(path, place.filters)}
    return [_resource(path, entry.size) for path, entry in list(files.items())[:MOST_LISTED]]


async def read_artifact(place: Place | None, uri: str) -> ReadResourceResult:
    path = path_of(uri)
    if path is None or place is None:
        raise MCPError(INVALID_PARAMS, f"there is no resource {uri!r}; resources/list has those that there are")
    try:
        data = await place.sandbox.read(path, max_bytes=MOST_BYTES)
    except FumehoodError as error:
        raise MCPError(INVALID_PARAMS, f"{uri} cannot be read: {error}") from None
    kind = media_type(path)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        blob = base64.b64encode(data).decode()
        return ReadResourceResult(contents=[BlobResourceContents(uri=uri, mime_type=kind, blob=blob)])
    shown = (await place.filters.apply(text, Direction.TOOL_RESULT)).text
    return ReadResourceResult(contents=[TextResourceContents(uri=uri, mime_type=kind, text=shown)])


async def made_files(place: Place, tool: str, arguments: dict[str, object], result: ToolResult) -> list[Resource]:
    """What a call has made or changed that clients may read."""
    if result.run is not None:
        files = {item.path: item.size for item in result.run.artifacts}
    elif tool == WRITE_FILE.name and result.ok:
        files = await _written(place, sandbox_path(str(arguments["path"])))
    else:
        return []
    return [_resource(path, size) for path, size in files.items() if is_plain(path, place.filters)]


async def _written(place: Place, path: str) -> dict[str, int]:
    """As it is listed: a file behind a link of the sandbox's is not."""
    if not Outputs(place.sandbox.policy.filesystem.outputs).match(path):
        return {}
    entry = (await place.sandbox.outputs()).get(path)
    return {} if entry is None else {path: entry.size}


def _resource(path: str, size: int) -> Resource:
    return Resource(uri=uri_of(path), name=path, mime_type=media_type(path), size=size)
