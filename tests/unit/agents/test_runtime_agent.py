"""Assistants and teams as agents of a runtime: tasks are messages, tools and sandboxes are the runtime's."""

from __future__ import annotations

import json

import anyio
import pytest
from unit.agents.runtime_staff import SMALL, MakeRuntime, Staff, ask, check_ends
from unit.agents.witness import Witness

from fumehood import Policy
from fumehood.agents import (
    PUBLISH,
    SEND_MESSAGE,
    ApprovalSettings,
    AssistantAgent,
    Resume,
    ScriptedModel,
    Stop,
    TaskDone,
    TaskRequest,
    call,
    task_agent,
)
from fumehood.agents.teams import CodingPair, HandoffTeam
from fumehood.runtime import AgentFailedError, AgentId, DeadlineError, Grants, RefusedError, RuntimeLimits
from fumehood.sandbox.async_sandbox import AsyncSandbox
from fumehood.tools import PYTHON, SHELL, tool
from fumehood.tools.approvals import ApprovalAnswer, Approvals, ApprovalStore

pytestmark = pytest.mark.anyio

CODER = Grants(tools=["python"], policies=[SMALL])
SIX_TIMES_SEVEN = ScriptedModel(call("python", code="print(6 * 7)"), "It is 42.")
ANSWERS = ScriptedModel("first", "second", "third")


async def test_a_task_is_a_message_and_its_records_carry_who_and_why(
    make_runtime: MakeRuntime, witness: Witness
) -> None:
    staff, policy = Staff(), SMALL.override({"filesystem": {"outputs": ["*.txt"]}})
    script = ScriptedModel(call("python", code="open('a.txt', 'w').write('x'); print(1)"), "Written.")
    async with make_runtime() as runtime:
        grants = Grants(tools=["python"], policies=[policy])
        await runtime.register("coder", task_agent(staff.hire(script, PYTHON, policy=policy)), grants=grants)
        done = await ask(runtime, "Write a file.", "coder/a")
    assert (done.text, done.stop, done.artifacts) == ("Written.", Stop.DONE, ("a.txt",))
    assert (done.usage.turns, done.usage.tool_calls) == (2, 1)
    assert staff.heard("coder/a") == [("user", "Write a file.")]
    (sent,) = witness.records("message.sent")
    for kind in ("task.started", "sandbox.opened", "tool.called", "run.finished", "model.answered", "task.ended"):
        ids = witness.records(kind)[0]["ids"]
        assert (ids["agent"], ids["message"], ids["task"]) == ("coder/a", sent["ids"]["message"], done.task_id), kind
    assert check_ends(witness) == ["done"]


async def test_an_answer_is_for_who_asked_and_the_other_knows_who_that_is(
    make_runtime: MakeRuntime, witness: Witness
) -> None:
    staff = Staff()
    writer = ScriptedModel(call("send_message", to="coder/x", text="What is 6 * 7?"), "They say it is 42.")
    grants = Grants(tools=["send_message"], policies=[SMALL], agents=["coder"])
    async with make_runtime() as runtime:
        await runtime.register("coder", task_agent(staff.hire(SIX_TIMES_SEVEN, PYTHON)), grants=CODER)
        await runtime.register("writer", task_agent(staff.hire(writer, SEND_MESSAGE)), grants=grants)
        done = await ask(runtime, "Find out.", "writer")
    assert done.text == "They say it is 42."
    assert [result.text for result in staff.results("writer/default")] == ["coder/x answered:\nIt is 42."]
    assert staff.heard("coder/x") == [("writer/default", "What is 6 * 7?")]
    assert check_ends(witness) == ["done", "done"]


async def test_what_is_published_is_a_task_for_those_who_are_subscribed(make_runtime: MakeRuntime) -> None:
    staff = Staff()
    crier = ScriptedModel(call("publish", topic="news.weather/oslo", text="rain"), "Told.")
    grants = Grants(tools=["publish"], policies=[SMALL], publish=["news.*"])
    async with make_runtime() as runtime:
        reading = Grants(subscribe=["news.*"])
        await runtime.register("reader", task_agent(staff.hire(ANSWERS)), grants=reading, subscriptions=["news.*"])
        await runtime.register("crier", task_agent(staff.hire(crier, PUBLISH)), grants=grants)
        assert (await ask(runtime, "Tell it.", "crier")).text == "Told."
        await runtime.idle()
    assert staff.heard("reader/oslo") == [("crier/default", "rain")]
    assert staff.results("crier/default")[0].text == "It is published to news.weather/oslo."


async def test_a_team_lives_there_too_with_the_grants_of_all_that_it_does(
    make_runtime: MakeRuntime, witness: Witness
) -> None:
    code = ScriptedModel("```python\nprint(sum(range(10)))\n```\n```sh\nls\n```", "The sum is 45.")
    async with make_runtime() as runtime:
        await runtime.register("pair", task_agent(lambda id: CodingPair(code, policy=SMALL, name="pair")), grants=CODER)
        done = await ask(runtime, "What is the sum of 0 to 9?", "pair")
    assert (done.text, done.stop) == ("The sum is 45.", Stop.DONE)
    (denied,) = witness.records("grant.denied")
    assert denied["data"] == {"action": "call the tool", "target": "shell"}
    assert (denied["ids"]["agent"], denied["ids"]["participant"]) == ("pair/default", "executor")
    assert {record["ids"]["agent"] for record in witness.records("tool")} == {"pair/default"}
    check_ends(witness)


async def test_handing_over_needs_a_grant_as_every_tool_does(make_runtime: MakeRuntime) -> None:
    def team(id: AgentId) -> HandoffTeam:
        first = AssistantAgent(
            "first",
            ScriptedModel(call("hand_off", to="expert"), "I must do it myself."),
            handoffs=["expert"],
            policy=SMALL,
        )
        return HandoffTeam([first, AssistantAgent("expert", ScriptedModel("It is 42."))])

    async with make_runtime() as runtime:
        await runtime.register("team", task_agent(team), grants=Grants(tools=["hand_off"], policies=[SMALL]))
        assert (await ask(runtime, "?", "team/a")).text == "It is 42."
        await runtime.grant("team", CODER)
        assert (await ask(runtime, "?", "team/b")).text == "I must do it myself."


async def test_a_policy_that_is_not_granted_opens_nothing_and_is_the_reason(
    make_runtime: MakeRuntime, witness: Witness
) -> None:
    large = SMALL.override({"network": {"allow": [{"host": "a.example", "ports": [443]}]}})
    async with make_runtime() as runtime:
        await runtime.register("coder", task_agent(Staff().hire(SIX_TIMES_SEVEN, PYTHON, policy=large)), grants=CODER)
        done = await ask(runtime, "?", "coder")
    assert done.stop is Stop.DENIED
    assert done.detail.startswith("coder/default may not open a sandbox under the policy sha256:")
    assert witness.records("sandbox") == []
    assert len(witness.records("grant.denied")) == 1
    assert check_ends(witness) == ["denied"]


async def test_what_is_taken_away_in_a_task_is_gone_at_the_next_call(make_runtime: MakeRuntime) -> None:
    staff = Staff()
    async with make_runtime() as runtime:

        @tool
        async def lose_it() -> str:
            """Lose a grant."""
            await runtime.grant("coder", Grants(tools=["python", "lose_it"]))
            return "lost"

        script = ScriptedModel(
            call("python", code="print(1)"), call("lose_it"), call("python", code="print(1)"), "End."
        )
        grants = Grants(tools=["python", "lose_it"], policies=[SMALL])
        kind = task_agent(staff.hire(script, PYTHON, lose_it))
        await runtime.register("coder", kind, grants=grants, tools=[lose_it])
        assert (await ask(runtime, "?", "coder")).stop is Stop.DONE
    assert [result.status for result in staff.results("coder/default")] == ["success", "success", "denied"]


async def test_tools_are_the_runtimes_and_none_is_brought_along(make_runtime: MakeRuntime) -> None:
    @tool
    def fetch() -> str:
        """Fetch."""
        raise AssertionError("the runtime does not know it")

    @tool(name="python")
    def other(code: str) -> str:
        """Not the runtime's."""
        raise AssertionError("the runtime has another one of this name")

    async with make_runtime() as runtime:
        for number, brought in enumerate((fetch, other)):
            script = ScriptedModel(call(brought.name), "end")
            grants = Grants(tools=["fetch", "python"], policies=[SMALL])
            await runtime.register(f"agent{number}", task_agent(Staff().hire(script, brought)), grants=grants)
            with pytest.raises(AgentFailedError, match="UsageError"):
                await ask(runtime, "?", f"agent{number}")
            assert "that its runtime does not know" in [*runtime.dead_letters][-1].detail


async def test_an_agent_that_is_open_elsewhere_does_not_work_there_for_a_runtime(make_runtime: MakeRuntime) -> None:
    agent = AssistantAgent("coder", SIX_TIMES_SEVEN, tools=[PYTHON], policy=SMALL, audit=False)
    async with agent, make_runtime() as runtime:
        await runtime.register("coder", task_agent(lambda id: agent), grants=Grants())
        with pytest.raises(AgentFailedError, match="UsageError"):
            await ask(runtime, "?", "coder")
        (letter,) = runtime.dead_letters
        assert "is already open elsewhere" in letter.detail


async def test_a_conversation_goes_on_after_a_restart(make_runtime: MakeRuntime) -> None:
    async with make_runtime() as runtime:
        await runtime.register("talker", task_agent(Staff().hire(ANSWERS)))
        assert (await ask(runtime, "one", "talker/anna")).text == "first"
        state = json.loads(json.dumps(await runtime.save_state()))
    staff = Staff()
    async with make_runtime() as runtime:
        await runtime.register("talker", task_agent(staff.hire(ANSWERS)))
        await runtime.load_state(state)
        assert (await ask(runtime, "two", "talker/anna")).text == "second"
        assert (await ask(runtime, "one", "talker/bert")).text == "first"
    assert staff.heard("talker/anna") == [("user", "one"), ("user", "two")]


async def test_a_task_waits_for_an_approval_and_goes_on_after_a_restart(
    make_runtime: MakeRuntime, witness: Witness
) -> None:
    policy = Policy(name="careful", approvals=[{"tool": "shell"}])
    script = ScriptedModel(call("shell", command="echo hello"), "Said.")
    asking = ApprovalSettings(pauses=True, store=witness.store)
    kind = task_agent(Staff().hire(script, SHELL, policy=policy, approvals=asking))
    grants = Grants(tools=["shell"], policies=[policy])
    async with make_runtime() as runtime:
        await runtime.register("operator", kind, grants=grants)
        paused = await ask(runtime, "Say hello.", "operator")
        state = await runtime.save_state()
    assert (paused.stop, witness.records("run.")) == (Stop.APPROVAL_PENDING, [])
    assert paused.approval is not None
    witness.store.answer(paused.approval, ApprovalAnswer(approved=True, by="alice"))
    async with make_runtime() as runtime:
        await runtime.register("operator", kind, grants=grants)
        await runtime.load_state(state)
        done = await runtime.send(Resume(), to="operator", reply=TaskDone)
        assert (done.text, done.task_id) == ("Said.", paused.task_id)
        with pytest.raises(RefusedError, match="no paused task"):
            await runtime.send(Resume(), to="operator")
    assert len(witness.records("run.finished")) == 1


async def test_a_gate_of_the_runtime_can_pause_a_task_too(make_runtime: MakeRuntime, witness: Witness) -> None:
    policy = Policy(name="careful", approvals=[{"tool": "shell"}])
    script = ScriptedModel(
        call("shell", command="echo hello"), "Said.", call("shell", command="echo bye"), "Forgotten."
    )
    elsewhere = ApprovalSettings(store=ApprovalStore(witness.store.path.parent / "elsewhere"))
    kind = task_agent(Staff().hire(script, SHELL, policy=policy, approvals=elsewhere))

    def gate(agent: AgentId, sandbox: AsyncSandbox) -> Approvals:
        return Approvals(sandbox.policy, store=witness.store, trail=sandbox.trail, unanswered="pause")

    async with make_runtime(gate=gate) as runtime:
        await runtime.register("operator", kind, grants=Grants(tools=["shell"], policies=[policy]))
        paused = await ask(runtime, "Say hello.", "operator")
        assert paused.approval is not None
        witness.store.answer(paused.approval, ApprovalAnswer(approved=True, by="alice"))
        assert (await runtime.send(Resume(), to="operator", reply=TaskDone)).text == "Said."
        assert (await ask(runtime, "Say bye.", "operator")).stop is Stop.APPROVAL_PENDING
        assert (await ask(runtime, "Forget it.", "operator")).text == "Forgotten."
    assert len(witness.records("run.finished")) == 1


async def test_two_keys_are_two_assistants(make_runtime: MakeRuntime) -> None:
    shared = AssistantAgent("talker", ANSWERS)
    async with make_runtime() as runtime:
        await runtime.register("talker", task_agent(lambda id: shared))
        assert (await ask(runtime, "a secret", "talker/anna")).text == "first"
        with pytest.raises(AgentFailedError, match="could not be created"):
            await ask(runtime, "what was it?", "talker/bert")
        (letter,) = runtime.dead_letters
        assert "talker/bert was given the assistant of talker/anna" in letter.detail
        assert (await ask(runtime, "more", "talker/anna")).text == "second"


@pytest.mark.parametrize("how", ["cancelled", "late"])
async def test_a_message_that_nobody_waits_for_cancels_its_task(
    make_runtime: MakeRuntime, witness: Witness, how: str
) -> None:
    has_begun, staff = anyio.Event(), Staff()

    @tool
    async def hang() -> None:
        """Never come back."""
        has_begun.set()
        await anyio.sleep_forever()

    script = ScriptedModel(call("hang"), "I was cut short before.")
    async with make_runtime() as runtime:
        grants = Grants(tools=["hang"], policies=[SMALL])
        await runtime.register("sleeper", task_agent(staff.hire(script, hang)), grants=grants, tools=[hang])
        if how == "late":
            with pytest.raises(DeadlineError):
                await runtime.send(TaskRequest(text="1"), to="sleeper", deadline=3)
        else:
            async with anyio.create_task_group() as group:
                group.start_soon(lambda: runtime.send(TaskRequest(text="1"), to="sleeper"))
                await has_begun.wait()
                group.cancel_scope.cancel()
        await runtime.idle()
        assert check_ends(witness) == ["cancelled"]
        assert (await ask(runtime, "2", "sleeper")).text == "I was cut short before."


async def test_what_is_said_is_cut_to_what_a_message_can_hold(make_runtime: MakeRuntime) -> None:
    policy = Policy(filters={"invisible": "off", "size": "4M"})
    script = ScriptedModel('"' * 600_000, "half \ud800 a pair")
    async with make_runtime() as runtime:
        await runtime.register("talker", task_agent(Staff().hire(script, policy=policy)))
        assert 10_000 < len((await ask(runtime, "?", "talker")).text) < 130_000
        assert (await ask(runtime, "?", "talker")).text == "half ? a pair"


async def test_a_message_that_does_not_arrive_is_told_in_words(make_runtime: MakeRuntime) -> None:
    staff = Staff()
    script = ScriptedModel(
        call("send_message", to="nobody", text="?"),
        call("send_message", to="mute", text="?"),
        call("send_message", to="broken", text="?"),
        call("send_message", to="mute", text="x" * 200_000),
        "End.",
    )

    async def mute(message: TaskRequest) -> None: ...

    async def broken(message: TaskRequest) -> TaskDone:
        raise ValueError("the password is swordfish")

    async with make_runtime(limits=RuntimeLimits(message_bytes=100_000)) as runtime:
        runtime.messages.add(TaskDone)
        await runtime.register("mute", mute)
        await runtime.register("broken", broken)
        grants = Grants(tools=["send_message"], policies=[SMALL], agents=["*"])
        await runtime.register("writer", task_agent(staff.hire(script, SEND_MESSAGE)), grants=grants)
        assert (await ask(runtime, "?", "writer")).stop is Stop.DONE
    told = [result.text for result in staff.results("writer/default")]
    assert told[0].startswith("There is no answer: there is no agent type 'nobody'")
    assert told[1] == "mute took it and answered nothing that could be read here."
    assert "broken/default failed with ValueError" in told[2]
    assert "swordfish" not in str(told)
    assert told[3].startswith("It could not be done: the message fumehood.task has 200011 bytes")


async def test_without_a_runtime_there_is_nobody_to_write_to() -> None:
    script = ScriptedModel([call("send_message", to="a", text="?"), call("publish", topic="a", text="?")], "End.")
    result = await AssistantAgent("writer", script, tools=[SEND_MESSAGE, PUBLISH], policy=SMALL, audit=False).run("?")
    told = [message.text for message in result.messages if message.kind == "tool"]
    assert told == ["There is no other agent to write to: this agent is not in a runtime."] * 2
