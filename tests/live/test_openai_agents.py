"""The sandbox client, its sessions and the tools under the OpenAI Agents SDK, with a scripted model."""

from __future__ import annotations

import io
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import engine
import pytest
from agents import Agent, ModelResponse, RunConfig, Runner, Usage
from agents.models.interface import Model
from agents.run_config import SandboxRunConfig
from agents.sandbox import Manifest, SandboxAgent
from agents.sandbox.entries import File
from agents.sandbox.errors import (
    ExecTimeoutError,
    InvalidManifestPathError,
    PtySessionNotFoundError,
    WorkspaceArchiveReadError,
    WorkspaceReadNotFoundError,
)
from agents.sandbox.manifest import Environment
from agents.sandbox.session import SandboxSession
from agents.sandbox.snapshot import LocalSnapshotSpec
from agents.sandbox.types import User
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText
from requirements import require

from fumehood import Policy, UsageError
from fumehood.integrations.adapter import default_policy
from fumehood.integrations.openai_agents import FumehoodSandboxClient, open_shell_tool, open_tools
from fumehood.tools.processes import MOST_PROCESSES

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.adapter(
        "test_a_sandbox_agent_works_in_a_session", "test_a_command_goes_on_between_calls_and_talks_on_a_terminal"
    ),
]


@pytest.fixture(scope="module", params=["native", *(["docker"] if os.geteuid() == 0 else [])])
def backend(request: pytest.FixtureRequest) -> str:
    if request.param == "docker":
        require(engine.missing() is None, engine.missing() or "")
    return request.param


@pytest.fixture(scope="module")
def client(backend: str) -> FumehoodSandboxClient:
    return FumehoodSandboxClient(default_policy(None).override({"backend": backend}))


@pytest.fixture
async def session(client: FumehoodSandboxClient) -> AsyncIterator[SandboxSession]:
    async with await client.create(options=None) as started:
        yield started


async def test_commands_and_files_of_a_session_are_the_sandboxs(
    session: SandboxSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    assert await session.running()
    await session.write(Path("in/data.txt"), io.BytesIO(b"6 7"))
    done = await session.exec("pwd; cat in/data.txt; env; exit 3")
    assert done.exit_code == 3
    assert done.stdout.startswith(b"/workspace\n6 7")
    assert b"sk-secret" not in done.stdout
    assert (await session.exec("printf", "%s", "$HOME;", shell=False)).stdout == b"$HOME;"
    assert (await session.read(Path("in/data.txt"))).read() == b"6 7"
    await session.mkdir("made/deep", parents=True)
    assert [Path(entry.path).name for entry in await session.ls("made")] == ["deep"]
    await session.mv("in/data.txt", "made/data.txt")
    await session.rm("made", recursive=True)
    with pytest.raises(WorkspaceReadNotFoundError):
        await session.read(Path("made/data.txt"))


async def test_a_session_ends_with_its_sandbox(client: FumehoodSandboxClient) -> None:
    session = await client.create(options=None)
    await session.start()
    await client.delete(session)
    assert not await session.running()
    with pytest.raises(UsageError, match="not running"):
        await session.exec("true")


async def test_nothing_is_done_as_somebody_else(session: SandboxSession) -> None:
    for user in ("root", User(name="root")):
        with pytest.raises(UsageError, match="nothing is done as 'root'"):
            await session.exec("id", user=user)
        with pytest.raises(UsageError, match="nothing is done as 'root'"):
            await session.read(Path("x"), user=user)
        with pytest.raises(UsageError, match="nothing is done as 'root'"):
            await session.write(Path("x"), io.BytesIO(b""), user=user)


async def test_paths_stay_in_the_workspace(session: SandboxSession) -> None:
    for path in ("/etc/passwd", "../etc/passwd"):
        with pytest.raises(InvalidManifestPathError):
            await session.read(Path(path))
        with pytest.raises(InvalidManifestPathError):
            await session.write(Path(path), io.BytesIO(b""))
    await session.exec("ln -s /etc/passwd link")
    with pytest.raises(WorkspaceArchiveReadError) as caught:
        await session.read(Path("link"))
    assert "leads out of the workspace" in str(caught.value.context["reason"])


async def test_a_session_keeps_to_the_clients_policy(backend: str) -> None:
    policy = Policy(backend=backend, resources={"timeout": 1}, commands={"allow": ["sleep"]})
    async with await FumehoodSandboxClient(policy).create(options=None) as session:
        with pytest.raises(ExecTimeoutError):
            await session.exec("sleep", "60", shell=False, timeout=30)
        denied = await session.exec("rm", "x", shell=False)
        assert denied.exit_code == 126
        assert b"rm is not allowed" in denied.stderr
        await session.write(Path("x"), io.BytesIO(b"text"))
        with pytest.raises(WorkspaceArchiveReadError) as caught:
            await session.read(Path("x"))
        assert "filesystem.outputs" in str(caught.value.context["reason"])


MANIFESTS = {
    "another root": (Manifest(root="/srv"), "manifest.root '/srv'"),
    "a user": (Manifest(users=[User(name="root")]), "users and groups"),
    "a path of the host": (
        Manifest.model_validate({"extra_path_grants": [{"path": "/data"}]}),
        r"extra_path_grants: '/data' has to be in filesystem\.mounts",
    ),
}


@pytest.mark.parametrize(("manifest", "words"), MANIFESTS.values(), ids=MANIFESTS.keys())
async def test_what_a_manifest_cannot_have_is_refused_by_name(manifest: Manifest, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        await FumehoodSandboxClient().create(manifest=manifest, options=None)


async def test_a_manifest_is_laid_out_and_a_snapshot_brings_it_back(
    client: FumehoodSandboxClient, tmp_path: Path
) -> None:
    manifest = Manifest(
        entries={"docs/note.txt": File(content=b"remember")}, environment=Environment(value={"COLOUR": "blue"})
    )
    snapshot = LocalSnapshotSpec(base_path=tmp_path)
    session = await client.create(manifest=manifest, snapshot=snapshot, options=None)
    async with session:
        assert (await session.exec("cat docs/note.txt; echo $COLOUR")).stdout == b"rememberblue\n"
        await session.exec("echo 'echo ran' > tool; chmod +x tool; ln -s tool link; mkfifo pipe")
    stored = json.loads(json.dumps(client.serialize_session_state(session.state)))
    assert "policy" not in stored
    async with await client.resume(client.deserialize_session_state(stored)) as resumed:
        assert (await resumed.exec("./link; cat docs/note.txt; ls")).stdout == b"ran\nrememberdocs\nlink\ntool\n"


class Script(Model):
    """Answers one step after the other: a tool call (or what makes one of the last output), or a text."""

    def __init__(self, *steps: Any) -> None:
        self._left = list(steps)
        self.heard: list[Any] = []

    async def get_response(self, system_instructions: Any, input: Any, *args: Any, **options: Any) -> ModelResponse:
        self.heard = [] if isinstance(input, str) else list(input)
        step = self._left.pop(0)
        if isinstance(step, str):
            content = ResponseOutputText(text=step, type="output_text", annotations=[])
            item: Any = ResponseOutputMessage(
                id="message", content=[content], role="assistant", status="completed", type="message"
            )
        else:
            name, arguments = step(self.outputs()[-1]) if callable(step) else step
            call_id = f"call_{len(self._left)}"
            item = ResponseFunctionToolCall(
                name=name, arguments=json.dumps(arguments), call_id=call_id, type="function_call"
            )
        return ModelResponse(output=[item], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **options: Any) -> Any:
        raise NotImplementedError

    def outputs(self) -> list[str]:
        return [str(item["output"]) for item in self.heard if item.get("type") == "function_call_output"]


QUIET = RunConfig(tracing_disabled=True)


async def test_a_sandbox_agent_works_in_a_session(client: FumehoodSandboxClient) -> None:
    script = Script(("exec_command", {"cmd": "cat note.txt; echo 42 > /tmp/answer; cat /etc/shadow"}), "done")
    agent = SandboxAgent(
        name="worker", model=script, default_manifest=Manifest(entries={"note.txt": File(content=b"remember\n")})
    )
    config = RunConfig(sandbox=SandboxRunConfig(client=client), tracing_disabled=True)
    result = await Runner.run(agent, "go on", run_config=config)
    assert result.final_output == "done"
    (output,) = script.outputs()
    assert "remember" in output
    assert "/etc/shadow: No such file or directory" in output


async def test_a_command_goes_on_between_calls_and_talks_on_a_terminal(session: SandboxSession) -> None:
    # A shell that echoes nothing, so that the answer is not found in the question.
    talker = await session.pty_exec_start("stty -echo; tty; exec sh", tty=True, yield_time_s=0.3)
    assert talker.process_id is not None
    assert talker.exit_code is None
    answer = talker.output
    for text in ("x=6; echo $((x * 7)) é\n", "echo again $x\n"):
        update = await session.pty_write_stdin(session_id=talker.process_id, chars=text, yield_time_s=0.3)
        answer += update.output
    while b"again 6" not in answer:
        answer += (await session.pty_write_stdin(session_id=talker.process_id, chars="\n", yield_time_s=0.3)).output
    assert b"/dev/pts/" in answer
    assert "42 é" in answer.decode()
    ended = await session.pty_write_stdin(session_id=talker.process_id, chars="exit 3\n", yield_time_s=30)
    assert (ended.exit_code, ended.process_id) == (3, None)
    with pytest.raises(PtySessionNotFoundError):
        await session.pty_write_stdin(session_id=talker.process_id, chars="")


async def test_a_command_without_a_terminal_has_no_input_and_ends_with_the_session(
    client: FumehoodSandboxClient,
) -> None:
    async with await client.create(options=None) as session:
        done = await session.pty_exec_start("cat; echo end; echo error >&2; exit 4", yield_time_s=30)
        assert (done.output, done.exit_code, done.process_id) == (b"end\nerror\n", 4, None)
        server = await session.pty_exec_start("echo up; exec sleep 1000", yield_time_s=0.25)
        assert server.process_id is not None
        with pytest.raises(RuntimeError, match="stdin is not available for this process"):
            await session.pty_write_stdin(session_id=server.process_id, chars="x")
        with pytest.raises(UsageError, match="nothing is done as 'root'"):
            await session.pty_exec_start("id", user="root")
    with pytest.raises(PtySessionNotFoundError):
        await session.pty_write_stdin(session_id=server.process_id, chars="")


async def test_commands_that_go_on_keep_to_the_policy_and_their_number() -> None:
    policy = Policy(resources={"timeout": 2}, commands={"allow": ["sleep"]})
    async with await FumehoodSandboxClient(policy).create(options=None) as session:
        denied = await session.pty_exec_start("rm", "x", shell=False)
        assert denied.exit_code == 126
        assert b"rm is not allowed" in denied.output
        late = await session.pty_exec_start("sleep", "60", shell=False, yield_time_s=30)
        assert b"longer than 2s" in late.output
        assert late.process_id is None
    async with await FumehoodSandboxClient().create(options=None) as session:
        started = [await session.pty_exec_start("sleep 1000", yield_time_s=0) for _ in range(MOST_PROCESSES + 1)]
        assert all(update.process_id for update in started)
        with pytest.raises(PtySessionNotFoundError):
            await session.pty_write_stdin(session_id=started[0].process_id or 0, chars="")


async def test_a_sandbox_agent_works_with_a_program_that_goes_on(client: FumehoodSandboxClient) -> None:
    def answer(heard: str) -> tuple[str, dict[str, Any]]:
        number = int(heard.split("Process running with session ID ")[1].split()[0])
        return "write_stdin", {"session_id": number, "chars": "6 * 7\nexit()\n", "yield_time_ms": 30000}

    script = Script(("exec_command", {"cmd": "python3 -q", "tty": True, "yield_time_ms": 250}), answer, "done")
    config = RunConfig(sandbox=SandboxRunConfig(client=client), tracing_disabled=True)
    await Runner.run(SandboxAgent(name="worker", model=script), "go on", run_config=config)
    assert "42" in script.outputs()[1]
    assert "Process exited with code 0" in script.outputs()[1]


async def test_function_tools_run_in_one_sandbox_and_tell_denials(backend: str) -> None:
    policy = Policy(backend=backend, commands={"allow": ["ls"]})
    steps = [
        ("python", {"code": "x = 6 * 7"}),
        ("python", {"code": "print(x)"}),
        ("shell", {"command": "rm x"}),
        ("shell", {"comand": "ls"}),
    ]
    script = Script(*steps, "It is 42.")
    async with open_tools(policy, session=True) as tools:
        result = await Runner.run(Agent(name="coder", model=script, tools=tools), "go", run_config=QUIET)
    assert result.final_output == "It is 42."
    outputs = script.outputs()
    assert outputs[1] == "Success.\nstdout:\n42"
    assert "rm is not allowed" in outputs[2]
    assert "comand: Extra inputs are not permitted" in outputs[3]


@pytest.mark.parametrize("is_approved", [True, False])
async def test_a_call_that_needs_approval_interrupts_the_run(is_approved: bool) -> None:
    script = Script(("shell", {"command": "echo made | tee file"}), ("list_files", {}), "so be it")
    async with open_tools({"approvals": [{"tool": "shell"}]}) as tools:
        agent = Agent(name="coder", model=script, tools=tools)
        first = await Runner.run(agent, "go", run_config=QUIET)
        (asked,) = first.interruptions
        state = first.to_state()
        (state.approve if is_approved else state.reject)(asked)
        second = await Runner.run(agent, state, run_config=QUIET)
    assert second.final_output == "so be it"
    shell, listed = script.outputs()
    assert ("made" in shell, "file" in listed) == (is_approved, is_approved)
    if not is_approved:
        assert listed == "The folder is empty."


async def test_the_shell_tool_runs_commands_up_to_one_that_fails(backend: str) -> None:
    from agents import RunContextWrapper, ShellActionRequest, ShellCallData, ShellCommandRequest, ShellResult

    async with open_shell_tool(Policy(backend=backend)) as tool:
        action = ShellActionRequest(["echo one > file", "cat file", "exit 3", "echo never"], timeout_ms=5000)
        assert tool.executor is not None
        request = ShellCommandRequest(RunContextWrapper(None), ShellCallData("call", action))
        result = await tool.executor(request)
        assert isinstance(result, ShellResult)
        assert [(output.command, output.exit_code) for output in result.output] == [
            ("echo one > file", 0),
            ("cat file", 0),
            ("exit 3", 3),
        ]
        assert "one" in result.output[1].stdout
        slow = ShellCallData("call", ShellActionRequest(["sleep 60"], timeout_ms=200))
        result = await tool.executor(ShellCommandRequest(RunContextWrapper(None), slow))
        assert isinstance(result, ShellResult)
        assert result.output[0].status == "timeout"
