"""Agents, runtimes and adapters work in the sandboxes of the opener that they are given."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel

from fumehood import Policy
from fumehood.agents import AssistantAgent, ScriptedModel, call
from fumehood.audit import AuditLog, Query
from fumehood.integrations.toolboxes import open_toolbox
from fumehood.runtime import Grants, LocalRuntime, MessageContext, RuntimeAgent, handles
from fumehood.sandbox.opener import LocalOpener
from fumehood.tenant import Tenant
from fumehood.tools import PYTHON

pytestmark = pytest.mark.anyio


@pytest.fixture
def acme(tmp_path: Path) -> Tenant:
    return Tenant("acme", tmp_path / "acme")


def kinds(folder: Path) -> list[str]:
    return [record.kind for record in AuditLog.at(folder).find(Query()) if not record.kind.startswith("log.")]


async def test_an_agent_works_in_the_sandboxes_of_its_opener(acme: Tenant, tmp_path: Path) -> None:
    model = ScriptedModel(call("python", code="print(6 * 7)"), "42")
    agent = AssistantAgent(
        "coder", model, tools=[PYTHON], audit=tmp_path / "own", sandboxes=LocalOpener(acme, tmp_path / "given")
    )
    assert (await agent.run("go")).text == "42"
    assert kinds(tmp_path / "given")[:2] == ["sandbox.opened", "tool.called"]
    assert "sandbox.opened" not in kinds(tmp_path / "own")


async def test_a_call_in_a_sandbox_without_a_log_here_is_in_the_agents_own(acme: Tenant, tmp_path: Path) -> None:
    model = ScriptedModel(call("python", code="print(6 * 7)"), "42")
    unrecorded = LocalOpener(acme, audit=False)
    await AssistantAgent("coder", model, tools=[PYTHON], audit=tmp_path / "own", sandboxes=unrecorded).run("go")
    assert [kind for kind in kinds(tmp_path / "own") if kind.startswith("tool.")] == ["tool.called", "tool.returned"]


class Code(BaseModel, frozen=True):
    text: str


class Runner(RuntimeAgent):
    @handles
    async def answer(self, message: Code, context: MessageContext) -> Code:
        async with context.toolbox(Policy()) as toolbox:
            await toolbox.call("shell", {"command": "true"})
            return Code(text=(await toolbox.call("python", {"code": message.text})).text)


async def test_agents_of_a_runtime_work_in_the_sandboxes_of_its_opener(acme: Tenant, tmp_path: Path) -> None:
    unrecorded = LocalOpener(acme, audit=False)
    async with LocalRuntime(audit=tmp_path / "own", sandboxes=unrecorded) as runtime:
        await runtime.register("runner", Runner, grants=Grants(tools=["python"], policies=[Policy()]))
        assert "42" in (await runtime.send(Code(text="print(6 * 7)"), to="runner", reply=Code)).text
    found = kinds(tmp_path / "own")
    assert "sandbox.opened" not in found
    assert [kind for kind in found if kind.startswith(("tool.", "grant."))] == [
        *("grant.denied", "tool.called", "tool.returned")
    ]


async def test_the_toolbox_of_a_framework_and_a_named_sandbox_are_of_the_tenant(acme: Tenant) -> None:
    opener = LocalOpener(acme)
    async with open_toolbox(None, [PYTHON], framework="any", sandboxes=opener) as toolbox:
        assert toolbox.sandbox.trail.tenant == "acme"
    async with opener.open("build", Policy(), create=True) as box:
        await box.run("open('state', 'w').write('kept')")
    async with opener.open("build") as box:
        assert (await box.run("print(open('state').read())")).stdout == "kept\n"
        assert box.trail.tenant == "acme"
