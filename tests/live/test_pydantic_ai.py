"""The workspace backend under Pydantic AI's own suite for such backends, and the toolset in agents."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path

import anyio
import anyio.lowlevel
import engine
import pytest
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, RunContext, ToolDenied
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.workspaces import (
    Workspace,
    WorkspaceBackend,
    WorkspaceOutputLimitError,
    WorkspaceRef,
    WorkspaceTimeoutError,
    WorkspaceUnavailableError,
)
from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite
from requirements import require

from fumehood import DeniedError, Policy
from fumehood.audit import AuditLog, Query
from fumehood.integrations.adapter import default_policy
from fumehood.integrations.pydantic_ai import SandboxToolset, SandboxWorkspaceBackend, SandboxWorkspaces

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.adapter(
        "test_an_agent_works_in_a_workspace_and_goes_on_there_later", "test_a_workspace_keeps_to_its_policy"
    ),
]


@pytest.fixture(scope="module", params=["native", *(["docker"] if os.geteuid() == 0 else [])])
def backend_name(request: pytest.FixtureRequest) -> str:
    if request.param == "docker":
        require(engine.missing() is None, engine.missing() or "")
    return request.param


@pytest.fixture(scope="module")
async def workspaces(backend_name: str) -> AsyncIterator[SandboxWorkspaces]:
    async with SandboxWorkspaces(default_policy(None).override({"backend": backend_name})) as opened:
        yield opened


@pytest.fixture(scope="module")
def shared(workspaces: SandboxWorkspaces) -> SandboxWorkspaceBackend:
    return workspaces.backend()


EXPECTED_FAILURES = {
    ("native", "test_cancellation_stops_foreground_work"): (
        "it looks for the process in another command, by its number; every command has a process namespace of its own, "
        "where that number is the looking shell's. That nothing is left is tested below"
    ),
}
# These run into a guard against hanging: the first by its failure; the second waits, and asserts nothing, for a
# background process that has ended with its command.
GUARDS = {
    "test_cancellation_stops_foreground_work": 5,
    "test_background_child_does_not_hold_up_completed_command": 0.5,
}


class TestWorkspaceBackend(WorkspaceBackendSuite):
    @pytest.fixture(autouse=True)
    def _expect_failures(
        self, request: pytest.FixtureRequest, backend_name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        name = request.node.originalname
        reason = EXPECTED_FAILURES.get((backend_name, name))
        if reason:
            request.applymarker(pytest.mark.xfail(reason=reason, raises=TimeoutError, strict=True))
        if name in GUARDS and (reason or "background" in name):
            for word in ("fail_after", "move_on_after"):
                monkeypatch.setattr(anyio, word, partial(_cut, getattr(anyio, word), GUARDS[name]))

    @pytest.fixture
    def backend(self, shared: SandboxWorkspaceBackend) -> WorkspaceBackend:
        return shared

    @pytest.fixture
    def fresh_backend(self, workspaces: SandboxWorkspaces) -> Callable[[], WorkspaceBackend]:
        return workspaces.backend

    @pytest.fixture
    def attach_backend(self, workspaces: SandboxWorkspaces) -> Callable[[WorkspaceRef], WorkspaceBackend]:
        return workspaces.backend

    @pytest.fixture
    def destroy_environment(self, workspaces: SandboxWorkspaces) -> Callable[[WorkspaceBackend], Awaitable[None]]:
        async def destroy(backend: WorkspaceBackend) -> None:
            assert backend.ref is not None
            await workspaces.destroy(backend.ref)

        return destroy


def _cut(guard: Callable[..., object], most: float, seconds: float, **options: bool) -> object:
    return guard(min(seconds, most), **options)


def test_the_suite_is_whole_and_every_expected_failure_is_in_it() -> None:
    names = {name for name in dir(WorkspaceBackendSuite) if name.startswith("test_")}
    assert len(names) >= 37
    assert names >= {name for _, name in EXPECTED_FAILURES} | GUARDS.keys()


async def test_a_command_that_is_cancelled_leaves_nothing(shared: SandboxWorkspaceBackend) -> None:
    """Neither itself nor what it started: none of them writes any more."""
    beat = "while :; do date +%N > beat; done"
    async with anyio.create_task_group() as group:
        group.start_soon(partial(shared.run, f"({beat}) & {beat}", shell=True))
        with anyio.fail_after(30):
            while not await shared.exists("/workspace/beat"):
                await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()
    before = await shared.read_bytes("/workspace/beat")
    assert (await shared.run(["sleep", "0.2"])).exit_code == 0
    assert await shared.read_bytes("/workspace/beat") == before
    await shared.remove("/workspace/beat")


async def test_a_workspace_keeps_to_its_policy(backend_name: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of the host")
    policy = Policy(
        backend=backend_name, resources={"timeout": 1, "output": "1K"}, commands={"allow": ["sleep", "yes", "cat"]}
    )
    async with SandboxWorkspaces(policy) as house:
        backend = house.backend()
        with pytest.raises(WorkspaceTimeoutError, match="longer than 1s"):
            await backend.run(["sleep", "60"], timeout=30)
        with pytest.raises(WorkspaceOutputLimitError, match="1K"):
            await backend.run("yes", shell=True)
        denied = await backend.run("cat x; rm x", shell=True)
        assert (denied.exit_code, denied.stdout) == (126, "")
        assert denied.stderr.startswith("denied: rm x: rm is not allowed")
        with pytest.raises(FileNotFoundError):
            await backend.read_bytes(str(tmp_path / "secret"))
        await backend.write_bytes("/workspace/x", b"text")
        with pytest.raises(PermissionError, match=r"filesystem\.outputs"):
            await backend.read_bytes("/workspace/x")
        with pytest.raises(PermissionError, match="only from there files may leave"):
            await backend.read_bytes("/etc/passwd")
    with pytest.raises(WorkspaceUnavailableError, match="closed"):
        await backend.working_dir()


async def test_a_policy_with_approvals_opens_no_workspace() -> None:
    """Nobody could be asked."""
    async with SandboxWorkspaces({"approvals": [{"tool": "shell"}]}) as house:
        with pytest.raises(DeniedError, match="approvals"):
            await house.backend().run("true", shell=True)


async def test_an_agent_works_in_a_workspace_and_goes_on_there_later(workspaces: SandboxWorkspaces) -> None:
    agent = Agent(scripted(call("note", text="first"), call("note", text="second"), "noted"))

    @agent.tool
    async def note(ctx: RunContext[None], text: str) -> str:
        assert isinstance(ctx.workspace, Workspace)
        await ctx.workspace.run(f"echo {text} >> notes", shell=True)
        return await ctx.workspace.read_text("notes")

    backend = workspaces.backend()
    result = await agent.run("write it down", workspace=backend)
    assert returned(result.all_messages()) == ["first\n", "first\nsecond\n"]
    assert backend.ref is not None
    assert await workspaces.backend(backend.ref).read_bytes("/workspace/notes") == b"first\nsecond\n"
    await workspaces.destroy(backend.ref)
    with pytest.raises(WorkspaceUnavailableError, match="closed or was never here"):
        await workspaces.backend(backend.ref).working_dir()


Step = ToolCallPart | str


def call(tool: str, **arguments: object) -> ToolCallPart:
    return ToolCallPart(tool, arguments)


def scripted(*steps: Step) -> FunctionModel:
    """Answers one step after the other, whatever it is told."""
    left = list(steps)

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        step = left.pop(0)
        return ModelResponse([TextPart(step) if isinstance(step, str) else step])

    return FunctionModel(answer)


def returned(messages: list[ModelMessage]) -> list[object]:
    return [part.content for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]


async def test_an_agent_uses_the_tools_in_one_sandbox(backend_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    toolset = SandboxToolset(Policy(backend=backend_name), session=True)
    steps = [
        call("write_file", path="in.txt", content="6 7"),
        call("python", code="a, b = map(int, open('in.txt').read().split())"),
        call("python", code="print(a * b)"),
        call("shell", command="env | grep -c secret; cat /etc/shadow"),
    ]
    agent = Agent(scripted(*steps, "It is 42."), toolsets=[toolset])
    result = await agent.run("multiply")
    assert result.output == "It is 42."
    texts = [str(text) for text in returned(result.all_messages())]
    assert texts[2] == "Success.\nstdout:\n42"
    assert "stdout:\n0" in texts[3]
    assert "No such file" in texts[3]


async def test_a_denial_is_a_failed_call_and_nonsense_is_asked_for_again() -> None:
    toolset = SandboxToolset({"commands": {"allow": ["ls"]}})
    agent = Agent(scripted(call("shell", command="rm x"), call("shell", comand="ls"), "enough"), toolsets=[toolset])
    messages = (await agent.run("try")).all_messages()
    parts = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
    assert [part.outcome for part in parts] == ["failed", "retried"]
    assert str(parts[0].content).startswith("Denied by the policy, nothing was started: rm x")
    assert "comand: Extra inputs are not permitted" in str(parts[1].content)


APPROVING = {"approvals": [{"tool": "shell"}]}


async def test_a_call_that_needs_approval_waits_for_it_and_is_made_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUMEHOOD_AUDIT", str(tmp_path))
    toolset = SandboxToolset(APPROVING)
    agent = Agent(
        scripted(call("shell", command="echo done | tee made"), "made"),
        toolsets=[toolset],
        output_type=[str, DeferredToolRequests],
    )
    async with agent:
        first = await agent.run("make it")
        assert isinstance(first.output, DeferredToolRequests)
        (asked,) = first.output.approvals
        assert first.output.metadata[asked.tool_call_id]["risk"] == "high"
        assert await toolset.toolbox.sandbox.files.list() == []
        answer = DeferredToolResults(approvals={asked.tool_call_id: True})
        second = await agent.run(message_history=first.all_messages(), deferred_tool_results=answer)
        assert second.output == "made"
        assert [entry.name for entry in await toolset.toolbox.sandbox.files.list()] == ["made"]
    records = AuditLog.at(tmp_path).find(Query())
    told = [
        (record.kind, record.parse()["data"].get("by")) for record in records if record.kind.startswith("approval.")
    ]
    assert told == [("approval.asked", None), ("approval.given", "pydantic-ai"), ("approval.used", None)]


async def test_a_call_that_is_not_approved_is_not_made() -> None:
    toolset = SandboxToolset(APPROVING)
    agent = Agent(
        scripted(call("shell", command="touch made"), "so be it"),
        toolsets=[toolset],
        output_type=[str, DeferredToolRequests],
    )
    async with agent:
        first = await agent.run("make it")
        assert isinstance(first.output, DeferredToolRequests)
        answer = DeferredToolResults(approvals={first.output.approvals[0].tool_call_id: ToolDenied("no")})
        second = await agent.run(message_history=first.all_messages(), deferred_tool_results=answer)
        assert returned(second.all_messages()) == ["no"]
        assert await toolset.toolbox.sandbox.files.list() == []
