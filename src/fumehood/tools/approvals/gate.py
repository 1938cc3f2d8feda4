"""The gate that asks people: decides whether a call needs a yes, asks for it, waits, and uses it up."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Literal, Protocol

import anyio
import anyio.to_thread

from fumehood.audit.log import current_user
from fumehood.audit.trail import OFF, Trail
from fumehood.concurrency.threads import run_whole
from fumehood.errors import ApprovalPendingError, NotApprovedError, UsageError
from fumehood.keywords import known_keywords
from fumehood.policy import Approval, Policy, format_duration
from fumehood.policy.approvals import may_be_reviewed, rules_that_ask
from fumehood.tools.approvals.requests import ApprovalAnswer, ApprovalRequest, Question, State
from fumehood.tools.approvals.review import Reviewer, ask_reviewer
from fumehood.tools.approvals.store import AnsweredError, ApprovalStore
from fumehood.tools.calls import GateAnswer, ToolCall
from fumehood.tools.result import ToolResult

_POLL_SECONDS = 0.2

Ask = Callable[[ApprovalRequest], Awaitable[ApprovalAnswer | None]]
"""Shows the request to a person. None when there is no answer here: one from elsewhere may still come, in time."""

Unanswered = Literal["wait", "refuse", "pause"]


class Listener(Protocol):
    def waiting(self, request: ApprovalRequest) -> None:
        """It is asked, and the call waits."""
        ...

    def settled(self, request: ApprovalRequest) -> None:
        """It is decided, here or elsewhere."""
        ...


class Approvals:
    """A `Gate`. Without `ask` the answer can only come from elsewhere, such as `hood approvals`; no answer is a no.

    `policy` may be a function where it can change: `lambda: box.policy`. `first_use` is the first use with this object:
    one of these is one task or conversation.

    `unanswered` says what becomes of a call that is not answered here: it waits for an answer from elsewhere; it
    is refused with the words of how to approve it, and the same call made again finds the answer; or it pauses, and
    ApprovalPendingError has the id under which it was asked, which `expect` takes up. With `withdraws` a
    question whose call is cancelled is taken back; without, it stands, and the same call made again uses the answer.

    A `reviewer` answers first, for calls that the policy leaves to one. What it does not answer goes on to a person.
    """

    asks_by_policy = True
    """A toolbox need not write the call down before it asks us, where the policy has no approvals."""

    @known_keywords()
    def __init__(
        self,
        policy: Policy | Callable[[], Policy],
        *,
        ask: Ask | None = None,
        store: ApprovalStore | None = None,
        trail: Trail = OFF,
        listener: Listener | None = None,
        unanswered: Unanswered = "wait",
        withdraws: bool = False,
        reviewer: Reviewer | None = None,
    ) -> None:
        self._current = policy if callable(policy) else lambda: policy
        self._ask, self._listener = ask, listener
        self._store, self._unanswered = store, unanswered
        self._trail = replace(trail, who=trail.who or current_user())
        self._withdraws, self._reviewer = withdraws, reviewer
        self._granted: set[Approval] = set()
        self._expected: list[str] = []

    def expect(self, request: str) -> None:
        """The next call that was asked about under this id is decided by it, whatever was answered."""
        self._expected.append(request)

    async def admit(self, call: ToolCall) -> GateAnswer:
        """Admits or refuses a call; the object is the `Gate` of a toolbox."""
        try:
            approved = await self.approve(call)
        except ApprovalPendingError as error:
            if self._unanswered == "pause":
                raise
            return GateAnswer(allowed=False, reason=f"{error.why}. Then make exactly the same call again")
        except NotApprovedError as error:
            return GateAnswer(allowed=False, reason=f"{error.why}. Do not try the same again")
        is_edited = approved.digest != call.digest
        return GateAnswer(allowed=True, arguments=approved.arguments if is_edited else None)

    async def finished(self, call: ToolCall, result: ToolResult) -> None:
        """That the yes is used up was recorded before."""

    def ask_for(self, call: ToolCall) -> bool:
        """Whether it needs a yes."""
        return bool(self._rules(self._current(), call))

    def _rules(self, policy: Policy, call: ToolCall) -> tuple[Approval, ...]:
        """Also those for which a tool that can do the same would need a yes, whatever this one is exempt from."""
        names = _names(call)
        found = (rules_that_ask(policy.approvals, name, call.risk.value, call.texts(), self._granted) for name in names)
        return tuple(dict.fromkeys(chain.from_iterable(found)))

    async def approve(self, call: ToolCall) -> ToolCall:
        """The call to make now and once, which may have been edited; NotApprovedError when it was not approved."""
        policy = self._current()
        if call.policy_digest != policy.digest:
            raise UsageError(f"the call of {call.tool!r} is for another policy than the one whose rules are asked")
        rules = self._rules(policy, call)
        if not rules:
            return call
        store = await anyio.to_thread.run_sync(self._open_store, policy)
        who, tenant, seconds = self._trail.who, self._trail.tenant, min(rule.expires for rule in rules)
        question = Question(call, policy, seconds, who, tenant)
        request = await run_whole(partial(self._asked, store, question), partial(self._withdraw, store))
        try:
            request, is_reviewed = await self._review(store, request, policy)
            final = await self._wait(store, request)
            if final.state is State.ASKED:
                if self._unanswered == "refuse":
                    await anyio.to_thread.run_sync(store.release, request.id, self._trail)
                raise ApprovalPendingError(call.tool, request.id, _how_to_approve(final))
            if final.state is not State.APPROVED:
                raise NotApprovedError(final.state, call.tool, final.told())
            approved = await anyio.to_thread.run_sync(store.use, request.id, call.digest, self._trail)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self._withdraw, store, request)
            raise
        if not is_reviewed:  # a reviewer's yes is for the call that it has seen
            self._granted.update(rules)
        return approved

    async def _review(
        self, store: ApprovalStore, request: ApprovalRequest, policy: Policy
    ) -> tuple[ApprovalRequest, bool]:
        """The request as it stands after the review, if there is one, and whether that has decided it."""
        if self._reviewer is None or request.state is not State.ASKED or not _is_routine(policy, request.call):
            return request, False
        review = await ask_reviewer(self._reviewer, request)
        answer, event = review.answer(), review.event(request)
        if answer is None:
            await self._trail.write(event)
            return request, False
        with suppress(AnsweredError):  # a person was quicker
            return await anyio.to_thread.run_sync(store.answer, request.id, answer, self._trail, event), True
        return await anyio.to_thread.run_sync(store.get, request.id, self._trail), False

    def _withdraw(self, store: ApprovalStore, request: ApprovalRequest) -> None:
        """Withdraws a request whose caller no longer waits."""
        if self._withdraws:
            store.withdraw(request.id, self._trail)

    def _asked(self, store: ApprovalStore, question: Question) -> ApprovalRequest:
        """What was asked before and is expected, or a new request."""
        for identifier in self._expected:
            if (request := store.take_up(identifier, question, self._trail)) is not None:
                self._expected.remove(identifier)
                return request
        return store.ask(question, self._trail)

    def _open_store(self, policy: Policy) -> ApprovalStore:
        if self._store is None:
            self._store = ApprovalStore()
        self._store.revoke_other_policies(policy, self._trail.tenant, self._trail)
        return self._store

    async def _wait(self, store: ApprovalStore, request: ApprovalRequest) -> ApprovalRequest:
        if request.state is State.ASKED and self._listener is not None:
            self._listener.waiting(request)
        answered, in_vain = anyio.Event(), anyio.Event()
        async with anyio.create_task_group() as group:
            if self._ask is None:
                in_vain.set()
            elif request.state is State.ASKED:
                group.start_soon(self._ask_here, self._ask, store, request, answered, in_vain)
            while request.state is State.ASKED and (self._unanswered == "wait" or not in_vain.is_set()):
                with anyio.move_on_after(_POLL_SECONDS):
                    await answered.wait()
                request = await anyio.to_thread.run_sync(store.get, request.id, self._trail)
            group.cancel_scope.cancel()
        if self._listener is not None and request.state is not State.ASKED:
            self._listener.settled(request)
        return request

    async def _ask_here(
        self, ask: Ask, store: ApprovalStore, request: ApprovalRequest, answered: anyio.Event, in_vain: anyio.Event
    ) -> None:
        """An exception while a person is asked is a no."""
        try:
            answer = await ask(request)
        except Exception as error:
            answer = ApprovalAnswer(approved=False, reason=f"asking failed: {type(error).__name__}: {error}")
        if answer is None:
            in_vain.set()
            return
        # An answer that came first is found by the waiting call.
        with suppress(AnsweredError):
            await self._hand_in(store, request, answer)
        answered.set()

    async def _hand_in(self, store: ApprovalStore, request: ApprovalRequest, answer: ApprovalAnswer) -> None:
        try:
            await anyio.to_thread.run_sync(store.answer, request.id, answer, self._trail)
        except AnsweredError:
            raise
        except UsageError as error:
            refusal = ApprovalAnswer(approved=False, reason=f"the answer is not valid: {error}", by=answer.by)
            await anyio.to_thread.run_sync(store.answer, request.id, refusal, self._trail)


def _names(call: ToolCall) -> tuple[str, ...]:
    return (call.tool,) if call.counts_as is None else (call.tool, call.counts_as)


def _is_routine(policy: Policy, call: ToolCall) -> bool:
    """Whether the policy leaves it to a reviewer, under each of the names that its rules hold for."""
    return all(may_be_reviewed(policy.approvals, name, call.risk.value, call.texts()) for name in _names(call))


def _how_to_approve(request: ApprovalRequest) -> str:
    seconds = max(1, round(request.expires_at - time.time()))
    left = format_duration(seconds if seconds < 120 else math.ceil(seconds / 60) * 60)
    return f"a person has to approve it within {left}, with `hood approvals approve {request.id}`"
