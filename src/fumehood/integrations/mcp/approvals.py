"""Approvals by the person who uses the client.

Until 2025-11-25 of the protocol a server asks in the middle of a call; since 2026-07-28 it answers the call with its
question, and the client makes the call again with the answer. A client that can do neither gets a refusal that says how
a person can answer; the question stays open, and the same call made again finds the answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import anyio.to_thread
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputResponses

from fumehood.audit import Trail
from fumehood.audit.log import current_user
from fumehood.characters import one_line
from fumehood.integrations.mcp.context import RequestContext, client_name, is_modern
from fumehood.policy import Policy
from fumehood.tools.approvals import AnsweredError, ApprovalAnswer, ApprovalRequest, Approvals, ApprovalStore, pages
from fumehood.tools.calls import GateAnswer, ToolCall
from fumehood.tools.result import ToolResult

_WIDTH = 100
_MOST_CHARACTERS = 20_000
_MOST_OPEN = 64
_FORM: dict[str, object] = {
    "type": "object",
    "properties": {
        "decision": {"type": "string", "enum": ["approve", "deny"], "title": "May this run, once, as it is shown?"},
        "reason": {"type": "string", "title": "Why (optional)", "maxLength": 500},
    },
    "required": ["decision"],
}

Ask = Callable[[ApprovalRequest], Awaitable[ApprovalAnswer | None]]
_ASK: ContextVar[Ask | None] = ContextVar("ask", default=None)


class ClientApprovals:
    """The gate of one client's toolbox."""

    def __init__(self, policy: Policy, trail: Trail) -> None:
        self._store, self._trail = ApprovalStore(), trail
        self._approvals = Approvals(policy, ask=self._ask, store=self._store, trail=trail, unanswered="refuse")
        self._put: dict[str, ApprovalRequest] = {}

    async def admit(self, call: ToolCall) -> GateAnswer:
        return await self._approvals.admit(call)

    async def finished(self, call: ToolCall, result: ToolResult) -> None:
        await self._approvals.finished(call, result)

    async def _ask(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        ask = _ASK.get()
        return None if ask is None else await ask(request)

    def put(self, request: ApprovalRequest) -> ElicitRequest:
        """The question as part of an answer to the client, which may come back with the answer to it."""
        self._put[request.id] = request
        while len(self._put) > _MOST_OPEN:
            del self._put[next(iter(self._put))]
        return ElicitRequest(params=_form(request))

    async def take(self, responses: InputResponses, client: str) -> str | None:
        """Store the client's answers. Returns the reason when one is a refusal, or came too late."""
        for name, response in responses.items():
            request = self._put.pop(name, None)
            if request is None or not isinstance(response, ElicitResult):
                continue
            answer = _read(response, client)
            try:
                settled = await anyio.to_thread.run_sync(self._store.answer, request.id, answer, self._trail)
            except AnsweredError as error:
                settled = error.request
            if not settled.is_open:
                return settled.told()
        return None


@contextmanager
def asking_client(context: RequestContext, *, may_ask: bool) -> Iterator[list[ApprovalRequest]]:
    """Inside the block, approvals are asked for through this client.

    Yields the requests that the answer to the call has to carry.
    """
    left: list[ApprovalRequest] = []
    can_ask = may_ask and _can_elicit(context)

    async def leave(request: ApprovalRequest) -> None:
        left.append(request)

    async def elicit(request: ApprovalRequest) -> ApprovalAnswer:
        form = _form(request)
        result = await context.session.elicit_form(form.message, form.requested_schema, context.request_id)
        return _read(result, client_name(context))

    async def ask(request: ApprovalRequest) -> ApprovalAnswer | None:
        if not can_ask or len(_form(request).message) > _MOST_CHARACTERS:
            return None
        return await (leave if is_modern(context) else elicit)(request)

    token = _ASK.set(ask)
    try:
        yield left
    finally:
        _ASK.reset(token)


def _can_elicit(context: RequestContext) -> bool:
    """An empty capability is that of clients from before there were two kinds."""
    capabilities = context.session.client_capabilities
    kinds = capabilities.elicitation if capabilities else None
    return kinds is not None and (kinds.form is not None or kinds.url is None)


def _form(request: ApprovalRequest) -> ElicitRequestFormParams:
    """The whole call that is to be approved, drawn so that nothing hides in it."""
    code = (
        f"{'' if line.number is None else line.number:>4} | {line}".rstrip()
        for line in pages.code_lines(request.call, _WIDTH)
    )
    title = f"{one_line(request.call.tool)} asks for approval ({request.id})"
    message = "\n".join((title, *pages.summary(request, request.call), *code))
    return ElicitRequestFormParams(message=message, requested_schema=_FORM)


def _read(result: ElicitResult, client: str) -> ApprovalAnswer:
    """Everything but a clear yes is a no."""
    content = result.content or {}
    by = f"{current_user()} through {client}"
    if result.action == "accept" and content.get("decision") == "approve":
        return ApprovalAnswer(approved=True, by=by)
    reason = content.get("reason")
    return ApprovalAnswer(approved=False, reason=one_line(reason)[:500] if isinstance(reason, str) else "", by=by)
