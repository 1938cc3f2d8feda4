"""A call waits for an answer, from the application or from elsewhere; without a yes it is not made."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from unit.tools.approvals.office import POLICY, Office, call

from fumehood import NotApprovedError, Policy, UsageError
from fumehood.audit.trail import OFF, Trail
from fumehood.errors import ApprovalPendingError
from fumehood.tools.approvals import AnsweredError, ApprovalAnswer, ApprovalRequest, Approvals, ApprovalStore, State
from fumehood.tools.approvals.requests import Question
from fumehood.tools.calls import ToolCall

pytestmark = pytest.mark.anyio


class Watcher:
    """Sees what a listener sees, and lets others wait for it."""

    def __init__(self) -> None:
        self.asked, self.requests, self.ends = anyio.Event(), list[ApprovalRequest](), list[str]()

    def waiting(self, request: ApprovalRequest) -> None:
        self.requests.append(request)
        self.asked.set()

    def settled(self, request: ApprovalRequest) -> None:
        self.ends.append(request.told())


@pytest.fixture
def office(tmp_path: Path) -> Office:
    office = Office(tmp_path)
    office.store = ApprovalStore(tmp_path / "approvals")
    return office


def answering(answer: ApprovalAnswer | Exception | None, seen: list[ApprovalRequest] | None = None):  # type: ignore[no-untyped-def]
    async def ask(request: ApprovalRequest) -> ApprovalAnswer | None:
        if seen is not None:
            seen.append(request)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return ask


def approvals(
    office: Office, answer: ApprovalAnswer | Exception | None, policy: Policy = POLICY, **more: object
) -> Approvals:
    return Approvals(policy, ask=answering(answer), store=office.store, trail=office.trail, **more)  # type: ignore[arg-type]


async def test_a_yes_of_the_application_is_enough_once(office: Office) -> None:
    seen: list[ApprovalRequest] = []
    gate = Approvals(POLICY, ask=answering(ApprovalAnswer(approved=True), seen), store=office.store, trail=office.trail)
    assert await gate.approve(call()) == call()
    assert await gate.approve(call()) == call()
    assert len({request.id for request in seen}) == 2
    assert office.kinds() == ["approval.asked", "approval.given", "approval.used"] * 2


async def test_a_call_without_a_rule_is_not_asked_about(office: Office) -> None:
    policy = Policy(approvals=[{"tool": "shell"}])
    wanted = call(policy=policy)
    assert await approvals(office, ApprovalAnswer(approved=False), policy).approve(wanted) is wanted
    assert office.kinds() == []


async def test_a_no_stops_the_call_with_its_reason(office: Office) -> None:
    with pytest.raises(NotApprovedError, match="python: not approved: denied by bob: too much") as caught:
        await approvals(office, ApprovalAnswer(approved=False, reason="too much", by="bob")).approve(call())
    assert caught.value.outcome == "denied"


async def test_a_callback_that_fails_is_a_no(office: Office) -> None:
    with pytest.raises(NotApprovedError, match="asking failed: ValueError: oops"):
        await approvals(office, ValueError("oops")).approve(call())
    assert office.kinds() == ["approval.asked", "approval.denied"]


async def test_nobody_answering_is_a_no(office: Office) -> None:
    policy = Policy(approvals=[{"tool": "*", "expires": "300ms"}])
    with pytest.raises(NotApprovedError, match="there was no answer in time") as caught:
        await approvals(office, None, policy).approve(call(policy=policy))
    assert caught.value.outcome == "expired"
    assert office.kinds() == ["approval.asked", "approval.expired"]


async def test_an_edited_call_is_made_instead(office: Office) -> None:
    edited = ApprovalAnswer(approved=True, arguments={"code": "print(2)"})
    assert await approvals(office, edited).approve(call()) == call("print(2)")


async def test_an_answer_that_makes_no_sense_is_a_no(office: Office) -> None:
    with pytest.raises(NotApprovedError, match="the answer is not valid"):
        await approvals(office, ApprovalAnswer(approved=True, arguments={"code": b"bytes"})).approve(call())


async def test_somebody_elsewhere_answers_while_the_application_asks(office: Office) -> None:
    watcher, is_left = Watcher(), anyio.Event()

    async def ask(request: ApprovalRequest) -> ApprovalAnswer | None:
        try:
            await anyio.sleep_forever()
        finally:
            is_left.set()

    gate = Approvals(POLICY, ask=ask, store=office.store, trail=office.trail, listener=watcher)

    async def answer() -> None:
        await watcher.asked.wait()
        await anyio.to_thread.run_sync(
            office.store.answer, watcher.requests[0].id, ApprovalAnswer(approved=True, by="alice"), office.trail
        )

    async with anyio.create_task_group() as group:
        group.start_soon(answer)
        assert await gate.approve(call()) == call()
    assert is_left.is_set()
    assert watcher.ends == ["approved by alice"]


async def test_an_answer_that_comes_second_changes_nothing(office: Office) -> None:
    async def ask(request: ApprovalRequest) -> ApprovalAnswer:
        await anyio.to_thread.run_sync(office.store.answer, request.id, ApprovalAnswer(approved=False, by="bob"))
        return ApprovalAnswer(approved=True, by="alice")

    with pytest.raises(NotApprovedError, match="denied by bob"):
        await Approvals(POLICY, ask=ask, store=office.store).approve(call())


async def test_a_policy_that_changes_meanwhile_stops_the_call(office: Office) -> None:
    async def ask(request: ApprovalRequest) -> ApprovalAnswer | None:
        changed = POLICY.override({"resources": {"memory": "1G"}})
        await anyio.to_thread.run_sync(office.store.revoke_other_policies, changed, None, office.trail)
        return ApprovalAnswer(approved=True)

    with pytest.raises(NotApprovedError, match="the policy has changed"):
        await Approvals(POLICY, ask=ask, store=office.store, trail=office.trail).approve(call())


async def test_a_call_for_another_policy_is_refused(office: Office) -> None:
    with pytest.raises(UsageError, match="another policy"):
        await approvals(office, ApprovalAnswer(approved=True)).approve(call(policy=Policy()))


async def test_what_is_made_is_what_was_approved_whatever_happens_to_the_arguments(office: Office) -> None:
    arguments: dict[str, object] = {"code": "print(1)", "args": ["harmless"]}

    async def ask(request: ApprovalRequest) -> ApprovalAnswer:
        arguments["args"].append("evil")  # type: ignore[attr-defined]
        return ApprovalAnswer(approved=True)

    wanted = ToolCall("python", arguments, POLICY.digest, code="code")
    made = await Approvals(POLICY, ask=ask, store=office.store).approve(wanted)
    assert made.arguments == {"code": "print(1)", "args": ["harmless"]}


async def test_first_use_asks_once_for_each_task(office: Office) -> None:
    policy, seen = Policy(approvals=[{"tool": "python", "when": "first_use"}]), list[ApprovalRequest]()
    for _ in range(2):
        gate = Approvals(policy, ask=answering(ApprovalAnswer(approved=True), seen), store=office.store)
        for code in ("print(1)", "print(2)"):
            await gate.approve(call(code, policy))
    assert len(seen) == 2


async def test_a_no_to_the_first_use_is_none_to_the_second(office: Office) -> None:
    policy, answers = Policy(approvals=[{"tool": "python", "when": "first_use"}]), [False, True]

    async def ask(request: ApprovalRequest) -> ApprovalAnswer:
        return ApprovalAnswer(approved=answers.pop(0))

    gate = Approvals(policy, ask=ask, store=office.store)
    with pytest.raises(NotApprovedError):
        await gate.approve(call(policy=policy))
    await gate.approve(call(policy=policy))
    await gate.approve(call(policy=policy))


async def test_the_shortest_time_of_the_rules_that_ask_holds(office: Office) -> None:
    policy = Policy(approvals=[{"tool": "*", "expires": "1h"}, {"tool": "*", "expires": "5m", "risk": "high"}])
    seen: list[ApprovalRequest] = []
    await Approvals(policy, ask=answering(ApprovalAnswer(approved=True), seen), store=office.store).approve(
        call(policy=policy)
    )
    assert seen[0].expires_at - seen[0].asked_at == 300
    assert seen[0].state is State.ASKED


async def test_a_call_that_is_cancelled_can_be_answered_and_made_again(office: Office) -> None:
    """Cancelling answers nothing: whoever is asked is still asked."""
    watcher = Watcher()
    gate = Approvals(POLICY, store=office.store, trail=office.trail, listener=watcher)
    async with anyio.create_task_group() as group:
        group.start_soon(gate.approve, call())
        await watcher.asked.wait()
        group.cancel_scope.cancel()
    assert office.store.get(watcher.requests[0].id).state is State.ASKED


async def test_without_waiting_an_open_question_is_a_no_and_the_same_call_finds_the_answer(office: Office) -> None:
    gate = approvals(office, None, unanswered="refuse")
    for _ in range(2):  # the same question is still open
        with pytest.raises(ApprovalPendingError, match="with `hood approvals approve ask_"):
            await gate.approve(call())
    (request,) = office.store.find()
    office.store.answer(request.id, ApprovalAnswer(approved=True, by="carol"), office.trail)
    with pytest.raises(NotApprovedError):  # another call is another question
        await gate.approve(call("print(2)"))
    assert await gate.approve(call()) == call()
    with pytest.raises(NotApprovedError):  # and the yes is used up
        await gate.approve(call())
    assert office.kinds().count("approval.used") == 1


async def test_without_waiting_a_no_from_elsewhere_is_told(office: Office) -> None:
    gate = approvals(office, ApprovalAnswer(approved=False, by="carol"), unanswered="refuse")
    with pytest.raises(NotApprovedError, match="denied by carol") as caught:
        await gate.approve(call())
    assert caught.value.outcome == "denied"


async def test_a_call_that_is_cancelled_takes_its_question_back_if_that_is_wanted(office: Office) -> None:
    watcher = Watcher()
    gate = Approvals(POLICY, store=office.store, trail=office.trail, listener=watcher, withdraws=True)
    async with anyio.create_task_group() as group:
        group.start_soon(gate.approve, call())
        await watcher.asked.wait()
        group.cancel_scope.cancel()
    (request,) = watcher.requests
    assert office.store.get(request.id).told() == "the call that asked for it was cancelled"
    assert office.kinds() == ["approval.asked", "approval.withdrawn"]
    with pytest.raises(AnsweredError):
        office.store.answer(request.id, ApprovalAnswer(approved=True))


class SlowStore(ApprovalStore):
    """The question is on its way when somebody cancels, and arrives after that."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.is_asking, self.may_go_on = threading.Event(), threading.Event()

    def ask(self, question: Question, trail: Trail = OFF) -> ApprovalRequest:
        self.is_asking.set()
        self.may_go_on.wait(10)
        return super().ask(question, trail)


async def test_a_question_that_is_on_its_way_is_taken_back_too(office: Office, tmp_path: Path) -> None:
    """Cancelled as asyncio does it, which no shield of anyio holds off."""
    store = SlowStore(tmp_path / "slow")
    gate = Approvals(POLICY, store=store, trail=office.trail, withdraws=True)
    task = asyncio.create_task(gate.approve(call()))
    await anyio.to_thread.run_sync(store.is_asking.wait, 10)
    task.cancel()
    asyncio.get_running_loop().call_later(0.05, store.may_go_on.set)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert store.find() == []
    assert office.kinds() == ["approval.asked", "approval.withdrawn"]


async def test_a_call_that_does_not_wait_says_under_which_id_it_was_asked(office: Office) -> None:
    gate = Approvals(POLICY, store=office.store, trail=office.trail, unanswered="pause")
    with pytest.raises(ApprovalPendingError) as pending:
        await gate.approve(call())
    office.store.answer(pending.value.request, ApprovalAnswer(approved=True), office.trail)
    later = Approvals(POLICY, store=office.store, trail=office.trail, unanswered="pause")
    later.expect(pending.value.request)
    assert await later.approve(call()) == call()
    assert office.kinds() == ["approval.asked", "approval.given", "approval.taken_up", "approval.used"]


async def test_what_is_expected_is_for_the_same_call_of_the_same_user_alone(office: Office) -> None:
    gate = Approvals(POLICY, store=office.store, trail=office.trail, unanswered="pause")
    with pytest.raises(ApprovalPendingError) as pending:
        await gate.approve(call())
    office.store.answer(pending.value.request, ApprovalAnswer(approved=True))
    another = replace(office.trail, who="mallory")
    for trail, wanted in ((office.trail, call("something else")), (another, call())):
        later = Approvals(POLICY, store=office.store, trail=trail, unanswered="pause")
        later.expect(pending.value.request)
        with pytest.raises(ApprovalPendingError) as asked:
            await later.approve(wanted)
        assert asked.value.request != pending.value.request
    assert office.store.get(pending.value.request).state is State.APPROVED
