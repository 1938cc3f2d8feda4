"""Tools in the hands of an agent, in real sandboxes: which ones and under which policy is the runtime's decision."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest
from unit.runtime.sample_agents import MakeRuntime, Reply

from fumehood import Policy, UnenforceableError, UsageError
from fumehood.audit import AuditLog, Query
from fumehood.runtime import AgentFailedError, AgentId, Grants, LocalRuntime, Message, MessageContext, Reason, handles
from fumehood.sandbox.async_sandbox import AsyncSandbox
from fumehood.tools import PYTHON, GateAnswer, ToolCall, ToolResult, tool

pytestmark = pytest.mark.anyio

SMALL = Policy(resources={"timeout": "20s"})
LARGE = SMALL.override({"network": {"allow": [{"host": "a.example", "ports": [443]}]}})
GRANTS = Grants(tools=["python"], policies=[SMALL])


class Call(Message):
    tool: str
    arguments: str
    policy: str = "small"


@handles
async def worker(message: Call, context: MessageContext) -> Reply:
    policy = {"small": SMALL, "large": LARGE}[message.policy]
    async with context.toolbox(policy) as toolbox:
        names = [schema["name"] for schema in toolbox.schemas()]
        result = await toolbox.call(message.tool, message.arguments)
    return Reply(text=f"{names} {result.status}: {result.text}")


async def reply(runtime: LocalRuntime, call: Call) -> str:
    return (await runtime.send(call, to="worker/w", reply=Reply)).text


async def test_a_granted_tool_works_and_its_records_carry_the_agent_and_the_message(
    make_runtime: MakeRuntime, tmp_path: Path
) -> None:
    log = AuditLog.at(tmp_path / "audit")
    async with make_runtime(audit=log) as runtime:
        await runtime.register("worker", worker, grants=GRANTS)
        text = await reply(runtime, Call(tool="python", arguments='{"code": "print(6 * 7)"}'))
    assert text == "['python'] success: Success.\nstdout:\n42"
    (sent,) = log.find(Query(kind="message.sent"))
    for kind in ("sandbox.opened", "tool.called", "run.requested", "run.finished"):
        (record,) = log.find(Query(kind=kind))
        ids = record.parse()["ids"]
        assert (ids["agent"], ids["message"]) == ("worker/w", sent.parse()["ids"]["message"])


async def test_another_tool_is_denied_and_recorded(make_runtime: MakeRuntime, tmp_path: Path) -> None:
    log = AuditLog.at(tmp_path / "audit")
    async with make_runtime(audit=log) as runtime:
        await runtime.register("worker", worker, grants=GRANTS)
        for tool in ("shell", "no_such_tool", "python "):
            text = await reply(runtime, Call(tool=tool, arguments="{}"))
            assert text == (
                f"['python'] denied: Denied: worker/w has no grant for the tool {tool!r}. Its tools are: python."
            )
    assert [record.data["target"] for record in log.find(Query(kind="grant.denied"))] == [
        "shell",
        "no_such_tool",
        "python ",
    ]
    assert list(log.find(Query(kind="run"))) == []


async def test_a_granted_policy_that_carries_the_digest_of_another_gets_what_its_keys_say(
    make_runtime: MakeRuntime,
) -> None:
    """Warm cells are found by digest: it would be in one with the limits of the other policy."""
    small, large = (Policy(resources={"open_files": count}) for count in (61, 62))
    forged = small.model_copy()
    forged.__dict__["digest"] = large.digest

    @handles
    async def forger(message: Call, context: MessageContext) -> Reply:
        async with context.toolbox(forged) as toolbox:
            return Reply(text=(await toolbox.call(message.tool, message.arguments)).text)

    code = "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE))"
    async with make_runtime() as runtime, AsyncSandbox(large) as box:
        assert (await box.run(code)).stdout == "(62, 62)\n"
        await runtime.register("worker", forger, grants=Grants(tools=["python"], policies=[small]))
        text = await reply(runtime, Call(tool="python", arguments=json.dumps({"code": code})))
    assert text.endswith("(61, 61)")


async def test_a_type_may_have_tools_of_its_own_and_needs_a_grant_for_them_too(make_runtime: MakeRuntime) -> None:
    @tool
    def tell() -> str:
        """Tell."""
        return "told"

    call = Call(tool="tell", arguments="{}")
    async with make_runtime() as runtime:
        await runtime.register("worker", worker, grants=Grants(tools=["tell"], policies=[SMALL]), tools=[tell])
        assert await reply(runtime, call) == "['tell'] success: told"
        await runtime.grant("worker", GRANTS)
        assert "no grant for the tool 'tell'" in await reply(runtime, call)
        await runtime.register("other", worker, grants=Grants(tools=["tell"], policies=[SMALL]))
        assert "There is no tool 'tell'" in (await runtime.send(call, to="other", reply=Reply)).text
        with pytest.raises(UsageError, match="two tools of this agent have the same name"):
            await runtime.register("third", worker, tools=[PYTHON])


async def test_a_larger_policy_opens_nothing(make_runtime: MakeRuntime, tmp_path: Path) -> None:
    log = AuditLog.at(tmp_path / "audit")
    async with make_runtime(audit=log) as runtime:
        await runtime.register("worker", worker, grants=GRANTS)
        with pytest.raises(AgentFailedError, match="NotGrantedError"):
            await reply(runtime, Call(tool="python", arguments="{}", policy="large"))
    (letter,) = runtime.dead_letters
    assert letter.reason is Reason.FAILED
    assert f"worker/w may not open a sandbox under the policy {LARGE.digest}" in letter.detail
    assert list(log.find(Query(kind="sandbox"))) == []


async def test_what_is_taken_away_while_a_sandbox_is_open_is_gone_at_the_next_call(make_runtime: MakeRuntime) -> None:
    results: list[str] = []

    async with make_runtime() as runtime:

        @handles
        async def greedy(message: Call, context: MessageContext) -> None:
            async with context.toolbox(SMALL) as toolbox:
                for grants in (GRANTS, Grants(tools=["python"]), Grants()):
                    await runtime.grant("worker", grants)
                    results.append((await toolbox.call("python", {"code": "print(1)"})).text)

        await runtime.register("worker", greedy, grants=GRANTS)
        await runtime.send(Call(tool="", arguments=""), to="worker/w")
    assert results == [
        "Success.\nstdout:\n1",
        "Denied: worker/w has no grant for this policy any more. Its tools are: python.",
        "Denied: worker/w has no grant for the tool 'python'. Its tools are: none.",
    ]


async def test_a_gate_is_asked_about_the_calls_of_agents(make_runtime: MakeRuntime) -> None:
    asked: list[tuple[AgentId, str]] = []

    class Guard:
        def __init__(self, agent: AgentId, sandbox: AsyncSandbox) -> None:
            self._agent = agent

        async def admit(self, call: ToolCall) -> GateAnswer:
            asked.append((self._agent, call.tool))
            return GateAnswer(allowed=False, reason="nobody is at home")

        async def finished(self, call: ToolCall, result: ToolResult) -> None: ...

    async with make_runtime(gate=Guard) as runtime:
        await runtime.register("worker", worker, grants=GRANTS)
        text = await reply(runtime, Call(tool="python", arguments='{"code": "print(1)"}'))
    assert text == "['python'] denied: Denied: nobody is at home."
    assert asked == [(AgentId("worker", "w"), "python")]


async def test_a_toolbox_is_closed_when_its_handler_is_cancelled(make_runtime: MakeRuntime, tmp_path: Path) -> None:
    log, has_begun = AuditLog.at(tmp_path / "audit"), anyio.Event()

    @tool
    async def hang() -> None:
        """Never come back."""
        has_begun.set()
        await anyio.sleep_forever()

    async with make_runtime(audit=log, tools=[hang]) as runtime:
        await runtime.register("worker", worker, grants=Grants(tools=["hang"], policies=[SMALL]))
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: runtime.send(Call(tool="hang", arguments="{}"), to="worker/w"))
            await has_begun.wait()
            group.cancel_scope.cancel()
        await runtime.idle()
    for kind in ("sandbox.opened", "sandbox.closed"):
        assert len(list(log.find(Query(kind=kind)))) == 1


async def test_in_a_room_of_its_own_an_agent_is_still_who_it_is(make_runtime: MakeRuntime, tmp_path: Path) -> None:
    log = AuditLog.at(tmp_path / "audit")
    forged = {"agent": "admin/root", "message": "msg_0", "runtime": "runtime_0", "sandbox": "box_0", "task": "task_1"}

    @handles
    async def forger(message: Call, context: MessageContext) -> None:
        async with context.sandbox(SMALL, ids=forged) as room:
            toolbox = room.toolbox([PYTHON], ids=forged)
            assert (await toolbox.call("python", {"code": "print(1)"})).status == "success"
            assert (await toolbox.call("half \ud800 a pair", {})).status == "denied"

    async with make_runtime(audit=log) as runtime:
        await runtime.register("worker", forger, grants=GRANTS)
        await runtime.send(Call(tool="", arguments=""), to="worker/w")
    for kind in ("sandbox.opened", "tool.called", "run.finished", "grant.denied"):
        (record,) = log.find(Query(kind=kind))
        ids = record.parse()["ids"]
        assert (ids["agent"], ids["task"]) == ("worker/w", "task_1")
        assert not any(ids[name] == forged[name] for name in ("agent", "message", "runtime", "sandbox"))
    assert record.data["target"] == r"half \ud800 a pair"


async def test_a_room_has_the_runtimes_tools_and_asks_where_the_policy_does(make_runtime: MakeRuntime) -> None:
    asking = SMALL.override({"approvals": [{"tool": "python"}]})

    @tool
    def tell() -> str:
        """Tell."""
        return "told"

    @tool(name="python")
    def other() -> str:
        """Another one of this name."""
        return "other"

    @handles
    async def maker(message: Call, context: MessageContext) -> None:
        async with context.sandbox(SMALL) as room:
            with pytest.raises(UsageError, match="has a tool 'tell' that its runtime does not know"):
                room.toolbox([tell])
            with pytest.raises(UsageError, match="the runtime has a tool 'python' already"):
                room.toolbox(own=[other])
            toolbox = room.toolbox([], own=[tell])
            assert (await toolbox.call("tell", {})).status == "denied"
            assert "There is no tool 'python'" in (await toolbox.call("python", {})).text
        with pytest.raises(UnenforceableError, match="approvals"):
            async with context.sandbox(asking):
                pass
        async with context.sandbox(asking, gated=True) as room:
            with pytest.raises(UsageError, match="no gate to ask"):
                room.toolbox()

    async with make_runtime() as runtime:
        await runtime.register("worker", maker, grants=Grants(tools=["python"], policies=[SMALL, asking]))
        await runtime.send(Call(tool="", arguments=""), to="worker/w")
