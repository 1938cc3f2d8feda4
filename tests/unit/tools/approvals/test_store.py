"""A yes is for one call, once, for a while; each attack here tries to get more out of it."""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
from pathlib import Path

import pytest
from unit.tools.approvals.office import POLICY, Office, call

from fumehood import NotApprovedError, Policy, SandboxError, UsageError
from fumehood.audit.inspection import check
from fumehood.host.processes import boot, start_time
from fumehood.tools.approvals import AnsweredError, ApprovalAnswer, ApprovalStore, State
from fumehood.tools.approvals.requests import Question
from fumehood.tools.approvals.store import MOST_OPEN

YES, NO = ApprovalAnswer(approved=True, by="alice"), ApprovalAnswer(approved=False, by="bob", reason="too much")


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


def outcome(office: Office, identifier: str, digest: str) -> str:
    with pytest.raises(NotApprovedError) as caught:
        office.store.use(identifier, digest, office.trail)
    return caught.value.outcome


def test_a_yes_is_used_once_and_every_step_is_in_the_audit_log(office: Office) -> None:
    request = office.ask()
    assert request.state is State.ASKED
    answered = office.store.answer(request.id, YES, office.trail)
    assert (answered.state, answered.answered_by) == (State.APPROVED, "alice")
    assert office.store.use(request.id, request.call.digest, office.trail) == request.call
    assert outcome(office, request.id, request.call.digest) == "used"
    assert office.kinds() == ["approval.asked", "approval.given", "approval.used"]
    assert {each["request"] for each in office.data("approval")} == {request.id}
    assert check(office.folder / "audit", None).problems == ()


def test_a_no_is_a_no(office: Office) -> None:
    request = office.ask()
    office.store.answer(request.id, NO, office.trail)
    assert outcome(office, request.id, request.call.digest) == "denied"
    assert office.data("approval.denied")[0]["reason"] == "too much"


def test_no_answer_is_a_no(office: Office) -> None:
    request = office.ask()
    assert outcome(office, request.id, request.call.digest) == "asked"


@pytest.mark.parametrize(
    "other",
    [
        call("print(2)"),
        call("print(1) "),
        call("print(1)", timeout=5),
        call("print(1)", policy=Policy(name="careful", approvals=[{"tool": "*"}], resources={"memory": "1G"})),
    ],
    ids=["code", "a space", "another argument", "policy"],
)
def test_a_yes_is_for_the_exact_call_alone(office: Office, other: object) -> None:
    request = office.ask()
    office.store.answer(request.id, YES, office.trail)
    assert outcome(office, request.id, other.digest) == "denied"  # type: ignore[attr-defined]
    assert office.store.use(request.id, request.call.digest) == request.call


def test_the_same_arguments_in_another_order_are_the_same_call() -> None:
    one, other = call(a=1, b=2), call(b=2, a=1)
    assert one.digest == other.digest
    assert one.digest != call(a=1, b=2.0).digest
    assert one.digest != call(a=True, b=2).digest


def test_arguments_cannot_be_moved_between_the_parts_of_a_digest() -> None:
    assert call('x","code":"y').digest != call("x", code2="y").digest


def test_of_two_answers_the_first_counts_and_the_second_is_told(office: Office) -> None:
    request = office.ask()
    office.store.answer(request.id, NO, office.trail)
    with pytest.raises(AnsweredError, match="denied by bob: too much"):
        office.store.answer(request.id, YES, office.trail)
    assert office.kinds() == ["approval.asked", "approval.denied"]


def test_many_threads_answer_at_once_and_one_wins(office: Office) -> None:
    request = office.ask()
    told: list[str] = []
    start = threading.Barrier(8)

    def answer(name: str) -> None:
        start.wait()
        try:
            office.store.answer(request.id, ApprovalAnswer(approved=True, by=name), office.trail)
            told.append("won")
        except AnsweredError as error:
            told.append(str(error.request.answered_by))

    threads = [threading.Thread(target=answer, args=(f"person {number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winner = office.store.get(request.id).answered_by
    assert sorted(told) == sorted(["won", *[winner] * 7])
    assert office.kinds().count("approval.given") == 1


@pytest.mark.parametrize("is_answered", [False, True])
def test_what_is_over_is_a_no(office: Office, is_answered: bool) -> None:
    request = office.ask(seconds=60)
    if is_answered:
        office.store.answer(request.id, YES, office.trail)
    office.clocks.pass_by(60)
    assert outcome(office, request.id, request.call.digest) == "expired"
    with pytest.raises(AnsweredError):
        office.store.answer(request.id, YES, office.trail)
    assert office.kinds()[-1] == "approval.expired"
    assert office.kinds().count("approval.expired") == 1


def test_a_clock_that_is_set_back_does_not_revive_it(office: Office) -> None:
    request = office.ask(seconds=60)
    office.store.answer(request.id, YES, office.trail)
    office.clocks.pass_by(61)
    assert office.store.get(request.id, office.trail).state is State.EXPIRED
    office.clocks.wall -= 1000
    assert outcome(office, request.id, request.call.digest) == "expired"


def test_a_clock_that_is_set_back_in_time_does_not_prolong_it(office: Office) -> None:
    request = office.ask(seconds=60)
    office.store.answer(request.id, YES, office.trail)
    office.clocks.wall -= 1000
    office.clocks.pass_by(61)
    assert outcome(office, request.id, request.call.digest) == "expired"


def test_a_clock_that_is_set_back_by_a_new_boot_does_not_prolong_it(office: Office) -> None:
    request = office.ask(seconds=60)
    office.store.answer(request.id, YES, office.trail)
    office.clocks.boot, office.clocks.since_boot, office.clocks.wall = "second boot", 3.0, 10.0
    assert outcome(office, request.id, request.call.digest) == "expired"


def test_a_yes_survives_a_new_boot(office: Office) -> None:
    request = office.ask(seconds=60)
    office.store.answer(request.id, YES, office.trail)
    office.clocks.boot, office.clocks.since_boot, office.clocks.wall = "second boot", 3.0, office.clocks.wall + 59
    assert office.store.get(request.id).state is State.APPROVED
    office.clocks.wall += 1
    assert outcome(office, request.id, request.call.digest) == "expired"


@pytest.mark.parametrize("is_answered", [False, True])
def test_a_change_of_the_policy_revokes_what_is_open(office: Office, is_answered: bool) -> None:
    request = office.ask()
    if is_answered:
        office.store.answer(request.id, YES, office.trail)
    changed = POLICY.override({"resources": {"memory": "1G"}})
    assert office.store.revoke_other_policies(changed, None, office.trail) == 1
    assert outcome(office, request.id, request.call.digest) == "revoked"
    assert office.data("approval.revoked")[0]["policy_digest"] == changed.digest


def test_another_policy_or_tenant_revokes_nothing(office: Office) -> None:
    office.ask()
    renamed = POLICY.override({"resources": {"memory": "1G"}, "name": "other"})
    assert office.store.revoke_other_policies(renamed, None, office.trail) == 0
    assert office.store.revoke_other_policies(POLICY, None, office.trail) == 0
    changed = POLICY.override({"resources": {"memory": "1G"}})
    assert office.store.revoke_other_policies(changed, "another tenant", office.trail) == 0


def test_what_is_approved_with_changes_is_another_call_and_recorded_as_such(office: Office) -> None:
    request = office.ask()
    answered = office.store.answer(
        request.id, ApprovalAnswer(approved=True, arguments={"code": "print(2)"}), office.trail
    )
    assert answered.edited == call("print(2)")
    assert outcome(office, request.id, call("print(2)").digest) == "denied"  # bound to what was asked
    used = office.store.use(request.id, request.call.digest, office.trail)
    assert used == call("print(2)")
    assert office.kinds() == ["approval.asked", "approval.edited", "approval.given", "approval.used"]
    assert office.data("approval.edited")[0]["approved_digest"] == call("print(2)").digest
    assert office.data("approval.used")[0]["digest"] == call("print(2)").digest


def test_changes_that_change_nothing_are_none(office: Office) -> None:
    request = office.ask()
    assert office.store.answer(request.id, ApprovalAnswer(approved=True, arguments={"code": "print(1)"})).edited is None


def test_requests_outlive_whoever_asked(office: Office) -> None:
    """The process that asked is dead by then, as far as the store can tell."""
    request = office.ask()
    orphan(office, request.id)
    office.store.answer(request.id, YES, office.trail)
    again = office.ask()
    assert (again.id, again.state) == (request.id, State.APPROVED)
    assert office.kinds() == ["approval.asked", "approval.given", "approval.taken_up"]
    office.store.use(again.id, again.call.digest, office.trail)
    orphan(office, request.id)
    assert office.ask().id != request.id


def test_a_request_of_a_living_process_is_not_taken_over(office: Office) -> None:
    assert office.ask().id != office.ask().id


def test_what_cannot_be_recorded_does_not_happen(office: Office) -> None:
    request = office.ask()
    (office.folder / "audit" / "audit.db").rename(office.folder / "moved")
    for attempt in (
        lambda: office.store.answer(request.id, YES, office.trail),
        lambda: office.ask(call("other")),
    ):
        with pytest.raises(SandboxError, match="audit log"):
            attempt()
    assert [each.state for each in office.store.find()] == [State.ASKED]


def test_what_was_changed_in_the_file_is_noticed(office: Office) -> None:
    request = office.ask()
    office.store.answer(request.id, YES, office.trail)
    with sqlite3.connect(office.store.path) as connection:
        connection.execute("""UPDATE requests SET arguments = '{"code":"print(3)"}'""")
    connection.close()
    with pytest.raises(SandboxError, match="The stored request was changed"):
        office.store.use(request.id, request.call.digest, office.trail)


def test_the_folder_is_its_owners_alone(office: Office) -> None:
    office.ask()
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in office.store.path.parent.iterdir()}
    assert stat.S_IMODE(office.store.path.parent.stat().st_mode) == 0o700
    assert set(modes.values()) == {0o600}
    office.store.path.parent.chmod(0o755)
    with pytest.raises(SandboxError, match="open to others"):
        ApprovalStore(office.store.path.parent)


def test_a_request_is_found_by_the_beginning_of_its_id(office: Office) -> None:
    one, other = office.ask(), office.ask()
    assert office.store.get(one.id[:12]).id == one.id
    with pytest.raises(UsageError, match="2 requests begin with 'ask_'"):
        office.store.get("ask_")
    with pytest.raises(UsageError, match="there is no request 'nothing'"):
        office.store.get("nothing")
    assert [each.id for each in office.store.find()] == sorted([one.id, other.id])


def test_the_policy_is_kept_with_the_request(office: Office) -> None:
    policy = Policy(
        name="p",
        approvals=[{"tool": "*"}],
        filesystem={"mounts": [{"source": "/srv", "target": "/data"}]},
        network={"allow": [{"host": "a.example", "ports": [443], "methods": ["GET"]}]},
        secrets=[{"name": "T", "from_env": "T", "inject": {"host": "a.example"}}],
        filters={"canaries": [{"name": "c", "from_env": "C"}]},
    )
    kept = office.store.get(office.ask(policy=policy).id).policy
    assert kept == policy
    assert kept.digest == policy.digest


def test_old_requests_are_forgotten(office: Office) -> None:
    office.store.answer(office.ask().id, NO, office.trail)
    office.clocks.pass_by(31 * 24 * 3600)
    fresh = office.ask()
    assert [each.id for each in office.store.find(only_open=False)] == [fresh.id]


def orphan(office: Office, identifier: str) -> None:
    """As if the process had died: its number belongs to another one."""
    with sqlite3.connect(office.store.path) as connection:
        connection.execute(
            "UPDATE requests SET holder = ? WHERE id = ?", (f"an-earlier-boot {os.getpid()} 1", identifier)
        )
    connection.close()


@pytest.mark.parametrize("elsewhere", ["1", "unknown"])
def test_a_request_of_another_process_namespace_is_not_taken_for_an_orphan(office: Office, elsewhere: str) -> None:
    """Whether its process lives cannot be seen from here; its answer is not for somebody else."""
    request = office.ask()
    with sqlite3.connect(office.store.path) as connection:
        there = f"{boot()} {elsewhere} {os.getpid()} {start_time(os.getpid())}"
        connection.execute("UPDATE requests SET holder = ? WHERE id = ?", (there, request.id))
    connection.close()
    assert office.ask().id != request.id


def test_no_more_questions_are_asked_than_somebody_can_answer(office: Office) -> None:
    asked = [office.ask(call(f"print({number})")) for number in range(MOST_OPEN)]
    with pytest.raises(NotApprovedError, match=rf"{MOST_OPEN} questions of agent wait .*hood approvals list"):
        office.ask(call("one more"))
    assert len(office.kinds()) == MOST_OPEN
    other = office.store.ask(Question(call("of somebody else"), POLICY, 60, "agent", "acme"), office.trail)
    assert other.state is State.ASKED
    office.store.answer(asked[0].id, ApprovalAnswer(approved=False), office.trail)
    assert office.ask(call("one more")).state is State.ASKED
    office.clocks.pass_by(61)
    assert office.ask(call("and another")).state is State.ASKED
