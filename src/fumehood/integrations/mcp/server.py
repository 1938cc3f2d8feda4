"""The server: the methods of the protocol, put together."""

from __future__ import annotations

from typing import Any

from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    UNSUPPORTED_PROTOCOL_VERSION,
    EmptyResult,
    ListResourcesResult,
    ListToolsResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
    SetLevelRequestParams,
    UnsupportedProtocolVersionErrorData,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from fumehood import __version__
from fumehood.errors import FumehoodError
from fumehood.integrations.mcp.calls import CallHandler
from fumehood.integrations.mcp.clients import Clients
from fumehood.integrations.mcp.context import RequestContext, is_modern
from fumehood.integrations.mcp.results import list_artifacts, read_artifact
from fumehood.integrations.mcp.tools import describe, instructions

NAME = "fumehood"


class SandboxServer(Server[Any]):
    """The low-level server of the SDK: our tools bring schemas, checks and results of their own."""

    def __init__(self, clients: Clients) -> None:
        policy = clients.settings.policy
        tools = describe(policy)
        listeners = InMemorySubscriptionBus()
        calls = CallHandler(clients, frozenset(tool.name for tool in tools), listeners)

        async def list_tools(context: RequestContext, params: PaginatedRequestParams | None) -> ListToolsResult:
            _refuse_cursor(params)
            return ListToolsResult(tools=tools)

        async def list_resources(context: RequestContext, params: PaginatedRequestParams | None) -> ListResourcesResult:
            _refuse_cursor(params)
            box = clients.of(context).open_sandbox
            try:
                return ListResourcesResult(resources=await list_artifacts(box) if box else [])
            except FumehoodError as error:
                raise MCPError(INTERNAL_ERROR, f"the files cannot be listed: {error}") from None

        async def read_resource(context: RequestContext, params: ReadResourceRequestParams) -> ReadResourceResult:
            return await read_artifact(clients.of(context).open_sandbox, str(params.uri))

        async def set_level(context: RequestContext, params: SetLevelRequestParams) -> EmptyResult:
            clients.of(context).log_level = params.level
            return EmptyResult()

        super().__init__(
            NAME,
            version=__version__,
            title="Fumehood",
            description="Runs code, commands and file work in a sandbox",
            instructions=instructions(policy),
            on_list_tools=list_tools,
            on_call_tool=calls.call,
            on_list_resources=list_resources,
            on_read_resource=read_resource,
            on_subscriptions_listen=ListenHandler(listeners),
        )
        # Registered here and not above, where the SDK warns: the newest revision has no such method, the others do.
        self.add_request_handler("logging/setLevel", SetLevelRequestParams, set_level)

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """The SDK calls this when a client connects; only here can it announce that resources change."""
        options = notification_options or NotificationOptions(resources_changed=True)
        return super().create_initialization_options(options, experimental_capabilities, extensions)


async def only_with_sessions(ctx: RequestContext, call_next: CallNext) -> HandlerResult:
    """Refuse the newest revision over HTTP: its requests belong to no session, and a sandbox has to.

    Clients that know older revisions, which is all known ones, then connect with one of them.
    """
    if is_modern(ctx):
        data = UnsupportedProtocolVersionErrorData(
            supported=list(HANDSHAKE_PROTOCOL_VERSIONS), requested=ctx.protocol_version
        )
        raise MCPError(
            UNSUPPORTED_PROTOCOL_VERSION,
            "a sandbox belongs to a session, which this revision has none of over HTTP; use an older one",
            data.model_dump(mode="json"),
        )
    return await call_next(ctx)


def _refuse_cursor(params: PaginatedRequestParams | None) -> None:
    if params is not None and params.cursor is not None:
        raise MCPError(INVALID_PARAMS, f"there is no page {params.cursor!r}: everything is on the first one")
