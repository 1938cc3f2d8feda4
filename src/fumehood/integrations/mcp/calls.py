"""One call of a tool, from the client's message to the answer, with progress and log messages beside it."""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import get_args

import anyio
from mcp.server.connection import allowed_log_levels
from mcp.server.subscriptions import ResourcesListChanged, SubscriptionBus
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    InputRequiredResult,
    LoggingLevel,
    LoggingMessageNotification,
    LoggingMessageNotificationParams,
)

from fumehood.errors import AuditError, FumehoodError, SandboxError
from fumehood.events import Stderr, Stdout
from fumehood.integrations.mcp.approvals import asking_client
from fumehood.integrations.mcp.clients import Client, Clients, ClientSandbox
from fumehood.integrations.mcp.context import RequestContext, client_name, is_modern
from fumehood.integrations.mcp.results import as_content, made_files, refusal
from fumehood.policy import format_size
from fumehood.tools import ToolStatus
from fumehood.tools.filters import Pipeline
from fumehood.tools.tool import Watch

_PAUSE_SECONDS = 0.1
_MOST_LINES = 20
_LONGEST_LINE = 4096
_MOST_CHARACTERS = 400
_LEVELS: tuple[LoggingLevel, ...] = get_args(LoggingLevel)
"""The log levels, from the least to the most important."""
_LOGGER = "fumehood"

Tell = Callable[[float, str], Awaitable[None]]
"""Receives the progress, which only grows, and lines about it."""


class CallHandler:
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
                box = await client.sandbox()
                return await self._answer(context, client, box, params)
        except FumehoodError as error:
            return refusal(f"The call failed: {error}")

    async def _answer(
        self, context: RequestContext, client: Client, box: ClientSandbox, params: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        """Takes the answers to an approval first, if this call repeats one that was answered with the question."""
        if box.approvals is not None and params.input_responses:
            refused = await box.approvals.take(params.input_responses, client_name(context))
            if refused is not None:
                return refusal(f"Denied: {refused}. Do not try the same again.", ToolStatus.DENIED)
        try:
            return await self._perform(context, client, box, params)
        except AuditError:
            raise
        except SandboxError as error:
            await client.abandon(box)
            return refusal(f"The sandbox failed: {error}. The next call gets a new one, without files and sessions.")

    async def _perform(
        self, context: RequestContext, client: Client, box: ClientSandbox, params: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        arguments = params.arguments or {}
        with asking_client(context, may_ask=self._clients.settings.asks_client) as questions:
            async with _progress(context, box) as watch:
                result = await box.toolbox.call(params.name, arguments, watch=watch)
        if questions and box.approvals is not None:
            return InputRequiredResult(input_requests={each.id: box.approvals.put(each) for each in questions})
        if result.status is ToolStatus.DENIED:
            await _log(context, client.log_level, "warning", f"{params.name}: {result.text}")
        files = await made_files(box, params.name, arguments, result)
        if files:
            await _notify_of_resources(context, self._listeners)
        return await as_content(result, files, box)


def _progress(context: RequestContext, box: ClientSandbox) -> AbstractAsyncContextManager[Watch | None]:
    """Reports progress, to a client that asked for it."""
    if "progress_token" not in (context.meta or {}):
        return nullcontext()

    async def tell(amount: float, line: str) -> None:
        await context.session.report_progress(amount, message=line)

    has_secrets = bool(box.sandbox.policy.secrets or box.filters.canaries)
    return reporting_progress(box.filters, tell, shows_text=not has_secrets)


async def _log(context: RequestContext, wanted: LoggingLevel, level: LoggingLevel, text: str) -> None:
    """`wanted` is the least that this client asked for; since 2026-07-28 each request says so itself."""
    allowed = allowed_log_levels(context.protocol_version, context.meta)
    if level not in allowed or (not is_modern(context) and _LEVELS.index(level) < _LEVELS.index(wanted)):
        return
    params = LoggingMessageNotificationParams(level=level, logger=_LOGGER, data=text)
    await context.session.send_notification(LoggingMessageNotification(params=params), context.request_id)


async def _notify_of_resources(context: RequestContext, listeners: SubscriptionBus) -> None:
    if is_modern(context):
        await listeners.publish(ResourcesListChanged())
    else:
        await context.session.send_resource_list_changed()


class ProgressReporter:
    """Reports output while it is written: takes it at once, and keeps the last lines for a client that is slower.

    A secret can stretch over lines that come one by one, and half of one is not recognised. So where the policy has
    any, the client receives the amount of output and not its text.
    """

    def __init__(self, filters: Pipeline, *, shows_text: bool) -> None:
        self._filters, self._shows_text = filters, shows_text
        self._decoders = {kind: codecs.getincrementaldecoder("utf-8")("replace") for kind in (Stdout, Stderr)}
        self._begun = {Stdout: "", Stderr: ""}
        self._lines: deque[str] = deque(maxlen=_MOST_LINES)
        self._bytes = 0
        self._news = anyio.Event()

    def see(self, event: Stdout | Stderr) -> None:
        kind = type(event)
        self._bytes += len(event.data)
        *lines, rest = (self._begun[kind] + self._decoders[kind].decode(event.data)).split("\n")
        # One character too many is enough to know that a line is too long.
        self._begun[kind] = rest[: _LONGEST_LINE + 1]
        self._lines.extend(_whole(line) for line in lines[-_MOST_LINES:] if line.strip())
        if self._lines or not self._shows_text:
            self._news.set()

    async def tell(self, tell: Tell) -> None:
        """Sends progress until it is cancelled."""
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            await tell(self._bytes, self._take())
            await anyio.sleep(_PAUSE_SECONDS)

    def _take(self) -> str:
        if not self._shows_text:
            return f"{format_size(self._bytes)} of output"
        lines = "\n".join(self._lines)
        self._lines.clear()
        return "\n".join(line[:_MOST_CHARACTERS] for line in self._filters.sift(lines).text.split("\n"))


def _whole(line: str) -> str:
    """Lines are cut after the filters have read them; one that is too long for them is not shown."""
    return line if len(line) <= _LONGEST_LINE else "[a long line]"


@asynccontextmanager
async def reporting_progress(filters: Pipeline, tell: Tell, *, shows_text: bool) -> AsyncIterator[Watch]:
    """Inside the block, the client receives what the runs of tools write."""
    reporter = ProgressReporter(filters, shows_text=shows_text)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reporter.tell, tell)
        yield reporter.see
        tasks.cancel_scope.cancel()
