"""Approvals over HTTP: a caller asks, another one answers with the digest that was shown, and the answer is used once.

Each tenant has a store of its own. The one who asks never answers: an agent's key with the scope `approve` would let
its model say yes to itself, and so would one that makes another key for that.
"""

from __future__ import annotations

import asyncio
from functools import partial

from fastapi import APIRouter
from starlette.responses import Response

from fumehood.audit.trail import Trail
from fumehood.errors import UsageError
from fumehood.server.api.models import ApprovalAnswerBody, ApprovalDetails, ApprovalUse, Id, NewApproval
from fumehood.server.api.problems import NotFoundError, PlainJson, RequestConflictError
from fumehood.server.api.routes import Caller, RunningServer, Server, scoped
from fumehood.server.identity.approvers import check_other
from fumehood.server.identity.principals import Principal, Scope
from fumehood.server.tenants.catalogue import find_policy
from fumehood.tools.approvals import AnsweredError, ApprovalAnswer, ApprovalRequest, ApprovalStore
from fumehood.tools.approvals.requests import Question
from fumehood.tools.calls import ToolCall

router = APIRouter(tags=["approvals"])


@router.get("/approvals", response_model=list[ApprovalDetails], **scoped(Scope.APPROVE))
async def list_approvals(server: Server, caller: Caller) -> Response:
    """Questions of the tenant's that wait for an answer, the oldest first."""
    store, trail = _store(server, caller)
    return PlainJson([_described(each) for each in await asyncio.to_thread(store.find, trail)])


@router.post("/approvals", response_model=ApprovalDetails, **scoped(Scope.RUN, 201))
async def ask_approval(server: Server, caller: Caller, wanted: NewApproval) -> Response:
    """Ask for the approval of a call, under a policy of the catalogue."""
    policy = await find_policy(server.database, caller.tenant, wanted.policy)
    if policy is None:
        raise NotFoundError("policy")
    call = ToolCall(wanted.tool, wanted.arguments, policy.digest, code=wanted.code, language=wanted.language)
    question = Question(call, policy, float(wanted.wait), caller.name, caller.tenant)
    store, trail = _store(server, caller)
    return PlainJson(_described(await asyncio.to_thread(store.ask, question, trail)), 201)


@router.get("/approvals/{id}", response_model=ApprovalDetails, **scoped(None))
async def show_approval(server: Server, caller: Caller, id: Id) -> Response:
    """For the one who asked, and for those who may answer."""
    request = await _find(server, caller, id)
    if not caller.may(Scope.APPROVE) and request.asked_by != caller.name:
        raise NotFoundError("question")
    return PlainJson(_described(request))


# Before the next: the pattern of that matches this one's path, too.
@router.post("/approvals/{id}:use", response_model=ApprovalDetails, **scoped(Scope.RUN))
async def use_approval(server: Server, caller: Caller, id: Id, given: ApprovalUse) -> Response:
    """Take an approval up, once: the call may be made now. Only the one who asked can."""
    request = await _find(server, caller, id)
    if request.asked_by != caller.name:
        raise NotFoundError("question")
    if request.edited is not None and given.digest != request.edited.digest:
        raise RequestConflictError(
            "it was approved with changes: make the call of `approved`, and use it by its digest"
        )
    store, trail = _store(server, caller)
    await asyncio.to_thread(partial(store.use, id, request.call.digest if request.edited else given.digest, trail))
    return PlainJson(_described(await _find(server, caller, id)))


@router.post("/approvals/{id}", response_model=ApprovalDetails, **scoped(Scope.APPROVE))
async def answer_approval(server: Server, caller: Caller, id: Id, given: ApprovalAnswerBody) -> Response:
    """Yes or no to exactly what has this digest. The first answer counts."""
    request = await _find(server, caller, id)
    await check_other(server.database, caller, request.asked_by)
    if request.call.digest != given.digest:
        raise RequestConflictError("the digest is not that of the question; look at it again, and answer what it shows")
    answer = ApprovalAnswer(approved=given.approved, reason=given.reason, by=caller.name)
    store, trail = _store(server, caller)
    try:
        return PlainJson(_described(await asyncio.to_thread(store.answer, id, answer, trail)))
    except AnsweredError as error:
        raise RequestConflictError(str(error)) from None


async def _find(server: RunningServer, caller: Principal, identifier: str) -> ApprovalRequest:
    store, trail = _store(server, caller)
    try:
        request = await asyncio.to_thread(store.get, identifier, trail)
    except UsageError:
        raise NotFoundError("question") from None
    if request.id != identifier:  # the beginning of an id is for persons at a terminal
        raise NotFoundError("question")
    return request


def _store(server: RunningServer, caller: Principal) -> tuple[ApprovalStore, Trail]:
    return ApprovalStore(server.chains.folder_of(caller.tenant) / "approvals"), server.chains.trail_of(caller)


def _described(request: ApprovalRequest) -> dict[str, object]:
    return {
        "id": request.id,
        "state": request.state.value,
        "tool": request.call.tool,
        "arguments": dict(request.call.arguments),
        "digest": request.call.digest,
        "risk": request.call.risk.value,
        "policy": request.policy_name,
        "asked_by": request.asked_by,
        "asked_at": request.asked_at,
        "expires_at": request.expires_at,
        "answered_by": request.answered_by,
        "reason": request.reason,
        "approved": _edited(request.edited) if request.edited else None,
    }


def _edited(call: ToolCall) -> dict[str, object]:
    return {"arguments": dict(call.arguments), "digest": call.digest}
