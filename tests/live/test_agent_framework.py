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

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.adapter(
        "test_an_agent_works_in_the_sandbox", "test_a_persistent_shell_keeps_folder_variables_and_jobs"
    ),
]


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


@pytest.fixture
async def kept(backend: str) -> AsyncIterator[SandboxShell]:
    async with SandboxShell(Policy(backend=backend), mode="persistent") as opened:
        yield opened


async def test_a_persistent_shell_keeps_folder_variables_and_jobs(kept: SandboxShell) -> None:
    first = await kept.run(
        "mkdir -p /tmp/there; cd /tmp/there; kept=42; f() { echo f $kept; }; sleep 1000 & cat; false"
    )
    assert (first.stdout, first.stderr, first.exit_code) == ("", "", 1)
    second = await kept.run("f; pwd; jobs -r | wc -l; echo no >&2; printf open")
    assert (second.stdout, second.stderr, second.exit_code) == ("f 42\n/tmp/there\n1\nopen", "no\n", 0)
    broken = await kept.run("echo 'open")
    assert broken.exit_code != 0
    assert "unexpected EOF" in broken.stderr
    await kept.run("exec > log 2>&1")
    assert (await kept.run("echo logged; f")).stdout == ""
    assert (await kept.run("grep -q 'f 42' log")).exit_code == 0


async def test_a_persistent_shell_that_ended_is_followed_by_a_new_one(kept: SandboxShell) -> None:
    await kept.run("kept=42")
    late = await kept.run("echo begun; sleep 1000", timeout=1)
    assert (late.stdout, late.timed_out, late.exit_code) == ("begun\n", True, 124)
    assert "it ran longer than 1s; the shell has ended" in late.stderr
    ended = await kept.run("echo new $kept; exit 3")
    assert (ended.stdout, ended.exit_code) == ("new\n", 3)
    assert "the shell has ended" in ended.stderr
    with anyio.move_on_after(0.5):
        await kept.run("sleep 1000")
    with pytest.raises(ShellCommandError, match="NUL character"):
        await kept.run("a\0b")
    assert (await kept.run("echo again")).stdout == "again\n"


async def test_a_program_in_a_persistent_shell_cannot_pass_for_its_end(kept: SandboxShell) -> None:
    """Neither by words that look like a mark nor by the descriptors that marks come and go on."""
    tries = "echo fumehood-00 0; env | grep MARK; echo fumehood 7 >&7; read -t 0 -u 9 || echo closed"
    done = await kept.run(f"{tries}; exit_code() {{ return 5; }}; exit_code")
    assert done.stdout == "fumehood-00 0\nclosed\n"
    assert done.exit_code == 5


async def test_a_persistent_shell_has_no_policy_with_commands() -> None:
    """`f() { rm x; }` and later `f`: each line is harmless for those who judge lines."""
    with pytest.raises(UsageError, match="cannot be judged by itself"):
        SandboxShell({"commands": {"allow": ["echo"]}}, mode="persistent")
    with pytest.raises(UsageError, match="must be one of stateless, persistent"):
        SandboxShell(mode="keep")  # pyright: ignore[reportArgumentType]


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
