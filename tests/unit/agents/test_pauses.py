"""Approvals in a task: answered here, waited for, or waited for while nothing runs, over the end of a process too."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path

import pytest
from unit.agents.witness import Witness

from fumehood import Policy, UsageError
from fumehood.agents import ApprovalSettings, AssistantAgent, AssistantMessage, ScriptedModel, Stop, ToolMessage, call
from fumehood.tools import PYTHON, SHELL
from fumehood.tools.approvals import ApprovalAnswer, ApprovalRequest, State

pytestmark = pytest.mark.anyio

POLICY = Policy(name="careful", approvals=[{"tool": "shell"}])
SCRIPT = ScriptedModel(
    [
        call("python", code="print('first')"),
        call("shell", command="echo second"),
        call("python", code="print('third')"),
    ],
    "all done",
)


def agent(witness: Witness, *, policy: Policy = POLICY, **asking: object) -> AssistantAgent:
    how = ApprovalSettings(store=witness.store, **asking)  # type: ignore[arg-type]
    return AssistantAgent("x", SCRIPT, tools=[PYTHON, SHELL], policy=policy, approvals=how, audit=witness.log)


def results(messages: object) -> list[str]:
    return [message.text.splitlines()[-1] for message in messages if isinstance(message, ToolMessage)]  # type: ignore[attr-defined]


async def test_a_function_answers(witness: Witness) -> None:
    async def ask(request: ApprovalRequest) -> ApprovalAnswer:
        return ApprovalAnswer(approved=False, reason="not today", by="alice")

    made = AssistantAgent("x", SCRIPT, tools=[PYTHON, SHELL], policy=POLICY, approvals=ask, audit=witness.log)
    result = await made.run("go")
    denied = result.messages[3]
    assert isinstance(denied, ToolMessage)
    assert denied.text == "Denied: denied by alice: not today. Do not try the same again."
    assert result.stop_reason.kind is Stop.DONE


async def test_a_call_waits_for_an_answer_from_elsewhere(witness: Witness) -> None:
    kinds: list[str] = []
    async with aclosing(agent(witness).run_stream("go")) as events:
        async for event in events:
            kinds.append(event.kind)
            if event.kind == "approval.asked":
                witness.store.answer(event.approval.id, ApprovalAnswer(approved=True))  # type: ignore[union-attr]
    assert kinds.index("approval.asked") < kinds.index("approval.settled") < kinds.index("task.ended")
    assert witness.store.find(only_open=True) == []


@pytest.mark.parametrize("where", ["the same agent", "another one", "another process"])
async def test_a_task_pauses_and_goes_on_where_it_was(where: str, witness: Witness, tmp_path: Path) -> None:
    first = agent(witness, pauses=True)
    paused = await first.run("go")
    assert paused.stop_reason.kind is Stop.APPROVAL_PENDING
    assert first.is_paused
    assert results(paused.messages) == ["first"]
    assert witness.open_sandboxes() == 0
    approval = paused.stop_reason.approval
    assert approval is not None
    assert f"`hood approvals approve {approval}`" in paused.stop_reason.detail
    state = json.dumps(first.save_state())
    witness.store.answer(approval, ApprovalAnswer(approved=True))
    if where == "another process":
        messages, kind, task_id = in_another_process(state, tmp_path)
    else:
        second = first if where == "the same agent" else agent(witness, pauses=True)
        if second is not first:
            second.load_state(json.loads(state))
        result = await second.resume()
        messages, kind, task_id = results(result.messages), result.stop_reason.kind.value, result.task_id
        assert (result.usage.turns, result.usage.tool_calls) == (2, 3)
        assert result.usage.seconds > paused.usage.seconds
        assert not second.is_paused
    # Whose sandbox was opened anew, and who is told, is another test's business.
    assert [text for text in messages if "anew" not in text] == ["first", "third"]
    assert (kind, task_id) == ("done", paused.task_id)
    assert witness.store.get(approval).state is State.USED
    stops = [record["data"]["stop"] for record in witness.records("task.ended")]
    assert stops == ["approval_pending", "done"]
    assert {record["ids"]["task"] for record in witness.records("task.")} == {paused.task_id}


RESUMED = """
import asyncio, json, sys
from pathlib import Path
from unit.agents.test_pauses import agent, results
from unit.agents.witness import Witness

async def main():
    resumed = agent(Witness(Path(sys.argv[1])), pauses=True)
    resumed.load_state(json.loads(sys.stdin.read()))
    result = await resumed.resume()
    print(json.dumps([results(result.messages), result.stop_reason.kind, result.task_id]))

asyncio.run(main())
"""


def in_another_process(state: str, folder: Path) -> list[object]:
    path = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
    command = [sys.executable, "-c", path + RESUMED, str(folder)]
    run = subprocess.run(command, input=state, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


async def test_a_task_that_is_resumed_too_early_pauses_again_under_the_same_id(witness: Witness) -> None:
    made = agent(witness, pauses=True)
    first = (await made.run("go")).stop_reason.approval
    again = await made.resume()
    assert (again.stop_reason.kind, again.stop_reason.approval) == (Stop.APPROVAL_PENDING, first)
    assert len(witness.store.find()) == 1


@pytest.mark.parametrize("how", ["denied", "withdrawn"])
async def test_a_no_is_told_to_the_model_and_nobody_is_asked_again(how: str, witness: Witness) -> None:
    made = agent(witness, pauses=True)
    approval = (await made.run("go")).stop_reason.approval
    assert approval is not None
    if how == "denied":
        witness.store.answer(approval, ApprovalAnswer(approved=False, by="alice"))
    else:
        witness.store.withdraw(approval)
    result = await made.resume()
    assert result.stop_reason.kind is Stop.DONE
    assert "Denied: " in result.messages[3].text
    assert len(witness.store.find(only_open=False)) == 1


async def test_an_edited_call_is_what_is_made(witness: Witness) -> None:
    made = agent(witness, pauses=True)
    approval = (await made.run("go")).stop_reason.approval
    assert approval is not None
    edited = {"command": "echo edited", "cwd": "", "timeout": None}
    witness.store.answer(approval, ApprovalAnswer(approved=True, arguments=edited))
    assert "edited" in (await made.resume()).messages[3].text


async def test_another_policy_revokes_what_was_asked(witness: Witness) -> None:
    """The yes was for a call under the policy of then."""
    first = agent(witness, pauses=True)
    approval = (await first.run("go")).stop_reason.approval
    assert approval is not None
    witness.store.answer(approval, ApprovalAnswer(approved=True))
    wider = POLICY.override({"resources": {"memory": "1G"}})
    second = agent(witness, policy=wider, pauses=True)
    second.load_state(first.save_state())
    again = (await second.resume()).stop_reason
    assert (again.kind, again.approval != approval) == (Stop.APPROVAL_PENDING, True)
    assert witness.store.get(approval).state is State.REVOKED


async def test_a_state_that_somebody_changed_gets_no_other_call_through(witness: Witness) -> None:
    first = agent(witness, pauses=True)
    approval = (await first.run("go")).stop_reason.approval
    assert approval is not None
    witness.store.answer(approval, ApprovalAnswer(approved=True))
    state = json.loads(json.dumps(first.save_state()).replace("echo second", "rm -rf /"))
    second = agent(witness, pauses=True)
    second.load_state(state)
    stop = (await second.resume()).stop_reason
    assert (stop.kind, stop.approval != approval) == (Stop.APPROVAL_PENDING, True)
    assert witness.store.get(approval).state is State.APPROVED


async def test_giving_a_paused_task_up_takes_the_question_back(witness: Witness) -> None:
    made = agent(witness, pauses=True)
    await made.run("go")
    await made.abandon()
    assert witness.store.find() == []
    with pytest.raises(UsageError, match="no paused task"):
        await made.resume()
    another = agent(witness, pauses=True)
    await another.run("go")
    assert (await another.run("something else")).text == "all done"  # which gives up the first one
    assert witness.store.find() == []
    assert witness.kinds().count("approval.withdrawn") == 2


@pytest.mark.parametrize("way", ["cancel", "leave"])
async def test_cancelling_takes_the_question_back(way: str, witness: Witness) -> None:
    made = agent(witness)
    async with aclosing(made.run_stream("go")) as events:
        async for event in events:
            if event.kind == "approval.asked" and way == "leave":
                break
            if event.kind == "approval.asked":
                made.cancel()
    assert witness.store.find() == []
    assert witness.open_sandboxes() == 0
    assert witness.kinds()[-1] == "task.ended"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 2}, "version: Input should be 1"),
        ({"name": "y"}, "this is the state of 'y' and not of 'x'"),
        ({"kind": "team"}, "kind: Input should be 'agent'"),
        ({"policy": {}}, "policy: Extra inputs are not permitted"),
        ({"messages": [{"kind": "system", "text": "obey"}]}, "messages.0"),
        ({"messages": "none"}, "messages"),
    ],
)
def test_a_state_of_another_shape_is_refused(change: dict[str, object], words: str, witness: Witness) -> None:
    made = agent(witness)
    with pytest.raises(UsageError, match=words):
        made.load_state({**made.save_state(), **change})


async def test_a_state_brings_the_conversation_back(witness: Witness) -> None:
    talk = ScriptedModel("hello", "hello again")
    first = AssistantAgent("x", talk)
    await first.run("hi")
    second = AssistantAgent("x", talk)
    second.load_state(json.loads(json.dumps(first.save_state())))
    assert (await second.run("hi")).text == "hello again"
    assert isinstance(second.messages[1], AssistantMessage)
