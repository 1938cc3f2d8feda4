"""The shell under Microsoft Agent Framework, with a scripted client."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import Any

import anyio
import engine
import pytest
from agent_framework import Agent, BaseChatClient, ChatResponse, Content, FunctionInvocationLayer, Message
from agent_framework_tools.shell import (
    ShellCommandError,
    ShellEnvironmentProvider,
    ShellEnvironmentProviderOptions,
    ShellExecutor,
)
from requirements import require

from fumehood import DeniedError, Policy, UsageError
from fumehood.integrations.agent_framework import SandboxShell

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=["native", *(["docker"] if os.geteuid() == 0 else [])])
def backend(request: pytest.FixtureRequest) -> str:
    if request.param == "docker":
        require(engine.missing() is None, engine.missing() or "")
    return request.param


@pytest.fixture
async def shell(backend: str) -> AsyncIterator[SandboxShell]:
    async with SandboxShell(Policy(backend=backend)) as opened:
        yield opened


async def test_it_is_what_the_framework_calls_a_shell_executor(shell: SandboxShell) -> None:
    assert isinstance(shell, ShellExecutor)


async def test_commands_run_in_the_sandbox_and_files_stay(shell: SandboxShell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    assert (await shell.run("echo kept > /tmp/file")).exit_code == 0
    done = await shell.run("cat /tmp/file; env | grep -c secret; echo no >&2; exit 3")
    assert (done.stdout, done.stderr, done.exit_code, done.timed_out) == ("kept\n0\n", "no\n", 3, False)
    assert "No such file" in (await shell.run("cat /etc/shadow")).stderr


async def test_limits_and_denials_are_the_policys(backend: str) -> None:
    policy = Policy(backend=backend, resources={"timeout": 1, "output": "1K"}, commands={"allow": ["sleep", "yes"]})
    async with SandboxShell(policy) as shell:
        late = await shell.run("sleep 60", timeout=30)
        assert late.timed_out
        assert "longer than 1s" in late.stderr
        assert (await shell.run("yes")).truncated
        with pytest.raises(ShellCommandError, match="rm is not allowed"):
            await shell.run("sleep 0; rm x")
    with pytest.raises(DeniedError, match="approvals"):
        await SandboxShell({"approvals": [{"tool": "shell"}]}).start()


async def test_it_opens_once_and_closes_for_good_as_often_as_one_likes(backend: str) -> None:
    shell = SandboxShell(Policy(backend=backend))
    await shell.start()
    first = shell.sandbox
    await shell.start()
    assert shell.sandbox is first
    await shell.close()
    await shell.close()
    with pytest.raises(UsageError, match="not open"):
        assert shell.sandbox


async def test_cancelling_ends_the_command(shell: SandboxShell) -> None:
    with anyio.move_on_after(0.5) as scope:
        await shell.run("while :; do date +%N > beat; done")
    assert scope.cancelled_caught
    before = (await shell.run("cat beat; sleep 0.2")).stdout
    assert (await shell.run("cat beat")).stdout == before


async def test_the_framework_probes_its_environment(shell: SandboxShell) -> None:
    options = ShellEnvironmentProviderOptions(probe_tools=("bash", "no-such-tool"))
    found = await ShellEnvironmentProvider(shell, options).refresh()
    assert found.working_directory == "/workspace"
    assert (found.tool_versions["bash"] or "").startswith("GNU bash")
    assert found.tool_versions["no-such-tool"] is None


class Script(FunctionInvocationLayer, BaseChatClient):
    """A chat client that answers one step after the other: a command, or a text."""

    def __init__(self, *steps: Content) -> None:
        super().__init__()
        self._left = list(steps)
        self.results: list[str] = []

    async def _answer(self, messages: Any) -> ChatResponse:
        parts = [part for message in messages for part in message.contents if part.type == "function_result"]
        self.results = [str(part.result) for part in parts]
        return ChatResponse(messages=[Message("assistant", [self._left.pop(0)])])

    def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **rest: Any) -> Any:
        return self._answer(messages)


def command(number: int, line: str) -> Content:
    return Content.from_function_call(f"call_{number}", "run_shell", arguments={"command": line})


async def test_an_agent_works_in_the_sandbox(backend: str) -> None:
    script = Script(
        command(1, "seq 3 | tee numbers"), command(2, "cat numbers; rm numbers"), Content.from_text("That is all.")
    )
    async with SandboxShell(Policy(backend=backend, commands={"allow": ["seq", "tee", "cat"]})) as shell:
        agent = Agent(client=script, tools=[shell.as_function()])
        answer = await agent.run("count")
    assert answer.text == "That is all."
    assert script.results[0] == "1\n2\n3\n\nexit_code: 0"
    assert "rm is not allowed" in script.results[1]


async def test_somebody_can_be_asked_before_each_command() -> None:
    async with SandboxShell(approval_mode="always_require") as shell:
        script = Script(command(1, "touch made"), Content.from_text("made"))
        answer = await Agent(client=script, tools=[shell.as_function()]).run("make it")
        assert len(answer.user_input_requests) == 1
        assert await shell.sandbox.files.list() == []
