"""The context of a request: the settings of the server, and the client's data in the request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from fumehood.characters import one_line
from fumehood.policy import Policy
from fumehood.policy.quantities import MIB
from fumehood.remote.place import USUAL
from fumehood.sandbox.interface import Opener

MOST_MESSAGE_BYTES = 8 * MIB
"""The size limit of one message from a client, over every transport."""

RequestContext = ServerRequestContext[Any, Any]


def _report_nothing(text: str) -> None:
    pass


@dataclass(frozen=True, slots=True)
class ToolServerSettings:
    policy: Policy = field(default_factory=Policy)
    asks_client: bool = True
    """Approvals are asked for through the client, where it can. Otherwise `hood approvals` alone can answer."""
    most_clients: int = 16
    idle_seconds: float = 600.0
    """A client over HTTP without a request for so long counts as disconnected."""
    report: Callable[[str], None] = _report_nothing
    """Shows a line to the operator of the server; may be called from any thread."""
    sandboxes: Opener = USUAL


def is_modern(context: RequestContext) -> bool:
    """Since 2026-07-28 a request carries all of its context, and a server sends no requests of its own."""
    return context.protocol_version in MODERN_PROTOCOL_VERSIONS


def client_name(context: RequestContext) -> str:
    """The name that the client reports, which proves nothing."""
    params = context.session.client_params
    return one_line(params.client_info.name)[:64] if params else "a client"
