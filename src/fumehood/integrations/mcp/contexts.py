"""What a request tells of its client."""

from __future__ import annotations

from typing import Any

from mcp.server.context import ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from fumehood.characters import one_line

RequestContext = ServerRequestContext[Any, Any]


def is_modern(context: RequestContext) -> bool:
    """Since 2026-07-28 every request stands for itself, and a server asks nothing on its own."""
    return context.protocol_version in MODERN_PROTOCOL_VERSIONS


def client_name(context: RequestContext) -> str:
    """As the client calls itself, which proves nothing."""
    params = context.session.client_params
    return one_line(params.client_info.name)[:64] if params else "a client"
