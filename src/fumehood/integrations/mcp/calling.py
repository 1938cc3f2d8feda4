"""One call of a tool, from the client's message to the answer."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, nullcontext

from mcp.server.subscriptions import SubscriptionBus
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, CallToolRequestParams, CallToolResult, InputRequiredResult

from fumehood.errors import AuditError, FumehoodError, SandboxError
from fumehood.integrations.mcp.artifacts import made_files
from fumehood.integrations.mcp.clients import Client, Clients
from fumehood.integrations.mcp.consent import asking
from fumehood.integrations.mcp.contexts import RequestContext, client_name
from fumehood.integrations.mcp.live import telling
from fumehood.integrations.mcp.logs import log, tell_of_resources
from fumehood.integrations.mcp.place import Place
from fumehood.integrations.mcp.results import as_content, refusal
from fumehood.tools import ToolStatus


class Caller:
    """Cancelling a call ends what it runs: everything below it is cancelled with it."""

    def __init__(self, clients: Clients, names: frozenset[str], listeners: SubscriptionBus) -> None:
        self._clients, self._names, self._listeners = clients, names, listeners

    async def call(
        self, context: RequestContext, params: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        if params.name not in self._names:
            raise MCPError(INVALID_PARAMS, f"there is no tool {params.name!r}; tools/list has those that there are")
        client = self._clients.of(context)
        try:
            async with client.turn():
                place = await client.place()
                return await self._answered(context, client, place, params)
        except FumehoodError as error:
            return refusal(f"It could not be done: {error}")

    async def _answered(
        self, context: RequestContext, client: Client, place: Place, params: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        """With what a person said to the question that the same call was answered with before, if this is the reply."""
        if place.consent is not None and params.input_responses:
            refused = await place.consent.take(params.input_responses, client_name(context))
            if refused is not None:
                return refusal(f"Denied: {refused}. Do not try the same again.", ToolStatus.DENIED)
        try:
            return await self._carried_out(context, client, place, params)
        except AuditError:
            raise
        except SandboxError as error:
            await client.abandon(place)
            return refusal(f"The sandbox failed: {error}. The next call gets a new one, without files and sessions.")

    async def _carried_out(
        self, context: RequestContext, client: Client, place: Place, params: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        arguments = params.arguments or {}
        with asking(context, may_ask=self._clients.settings.asks_client) as questions:
            async with _progress(context, place):
                result = await place.toolbox.call(params.name, arguments)
        if questions and place.consent is not None:
            return InputRequiredResult(input_requests={each.id: place.consent.put(each) for each in questions})
        if result.status is ToolStatus.DENIED:
            await log(context, client.log_level, "warning", f"{params.name}: {result.text}")
        files = await made_files(place, params.name, arguments, result)
        if files:
            await tell_of_resources(context, self._listeners)
        return await as_content(result, files, place)


def _progress(context: RequestContext, place: Place) -> AbstractAsyncContextManager[None]:
    """Only for a client that asked for it: nobody has to watch a run that nobody looks at."""
    if "progress_token" not in (context.meta or {}):
        return nullcontext()

    async def tell(amount: float, line: str) -> None:
        await context.session.report_progress(amount, message=line)

    has_secrets = bool(place.sandbox.policy.secrets or place.filters.canaries)
    return telling(place.filters, tell, shows_text=not has_secrets)
