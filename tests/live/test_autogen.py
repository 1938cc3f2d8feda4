"""The executor under AutoGen's own packages: what its executors do, ours does, in a sandbox."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import engine
import pytest
from autogen_agentchat.agents import ApprovalRequest, ApprovalResponse, CodeExecutorAgent
from autogen_agentchat.base import TaskResult
from autogen_agentchat.conditions import TextMentionTermination
from autogen_agentchat.messages import CodeExecutionEvent, TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, with_requirements
from autogen_ext.models.replay import ReplayChatCompletionClient
from autogen_ext.tools.code_execution import CodeExecutionInput, PythonCodeExecutionTool
from live.traces import cells_of, has_process, is_alive, wait_until
from ordinary import own
from requirements import require

from fumehood import Cause, FumehoodError, Policy, Status, UnenforceableError
from fumehood.audit import AuditLog, Query
from fumehood.integrations.autogen import (
    DockerCommandLineCodeExecutor,
    ExecutorError,
    OptionError,
    SandboxCodeExecutor,
    SandboxCodeResult,
)

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.adapter(
        "test_a_work_dir_is_shared_with_the_host",
        "test_memory_is_limited_for_real",
        "test_a_restart_brings_back_a_sandbox_that_was_lost",
        "test_what_docker_would_have_to_be_told_holds_anyway",
    ),
]

Make = Callable[..., SandboxCodeExecutor]
READY = "import time; open('ready', 'w').close(); time.sleep(600)"


async def execute(executor: SandboxCodeExecutor, *blocks: tuple[str, str]) -> SandboxCodeResult:
    code_blocks = [CodeBlock(code=code, language=language) for language, code in blocks]
    return await executor.execute_code_blocks(code_blocks, CancellationToken())


@pytest.fixture(params=["native", *(["docker"] if os.geteuid() == 0 else [])])
def backend(request: pytest.FixtureRequest) -> str:
    if request.param == "docker":
        require(engine.missing() is None, engine.missing() or "")
    return request.param


@pytest.fixture
def make(backend: str) -> Make:
    """An executor as its users write it down: on this machine itself, or in an image."""
    if backend == "native":
        return SandboxCodeExecutor
    return partial(DockerCommandLineCodeExecutor, image=engine.IMAGE)


@pytest.fixture
async def executor() -> AsyncIterator[SandboxCodeExecutor]:
    async with SandboxCodeExecutor(timeout=20) as started:
        yield started


@pytest.fixture
async def each_executor(make: Make) -> AsyncIterator[SandboxCodeExecutor]:
    """On each backend."""
    async with make(timeout=20) as started:
        yield started


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of an ordinary user's: root's own no container may write to."""
    folder = tmp_path / "coding"
    folder.mkdir()
    own(folder)
    return folder


def approve(request: ApprovalRequest) -> ApprovalResponse:
    return ApprovalResponse(approved=True, reason="a sandbox holds it")


# Blocks, exit codes and output


@pytest.mark.parametrize(
    ("language", "code", "expected"),
    [
        ("python", "import sys; print('hello'); sys.exit(0)", (0, "hello\n")),
        ("Python", "print('grüße 你好 🎉')", (0, "grüße 你好 🎉\n")),
        ("py", "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)", (3, "out\nerr\n")),
        ("sh", "echo out; echo err >&2; exit 4", (4, "out\nerr\n")),
        ("shell", "echo hello", (0, "hello\n")),
        ("bash", 'words=(a b); echo "${words[1]}"', (0, "b\n")),
        ("python", "", (0, "")),
        ("python", "print('no end of line', end='')", (0, "no end of line")),
    ],
)
async def test_a_block_gives_its_exit_code_and_its_output(
    each_executor: SandboxCodeExecutor, language: str, code: str, expected: tuple[int, str]
) -> None:
    result = await execute(each_executor, (language, code))
    assert (result.exit_code, result.output) == expected


async def test_blocks_run_in_order_and_stop_at_the_first_that_fails(each_executor: SandboxCodeExecutor) -> None:
    result = await execute(each_executor, ("python", "print(1)"), ("sh", "echo 2; exit 5"), ("python", "print(3)"))
    assert (result.exit_code, result.output) == (5, "1\n2\n")
    result = await execute(each_executor, ("python", "print(1)"), ("python", "print(2)\nraise ValueError('second')"))
    assert result.exit_code == 1
    assert result.output.startswith("1\n2\nTraceback")
    assert result.output.endswith("ValueError: second\n")


async def test_files_stay_from_block_to_block_and_call_to_call(each_executor: SandboxCodeExecutor) -> None:
    await execute(each_executor, ("python", "open('notes.txt', 'w').write('kept')"), ("sh", "cat notes.txt > copy.txt"))
    assert (await execute(each_executor, ("sh", "cat copy.txt"))).output == "kept"


async def test_a_block_may_name_its_file(each_executor: SandboxCodeExecutor) -> None:
    result = await execute(
        each_executor, ("python", "# filename: pkg/tool.py\ndef f():\n    return 7\nprint(__file__)")
    )
    assert (result.output, result.code_file) == ("/workspace/pkg/tool.py\n", "/workspace/pkg/tool.py")
    assert (await execute(each_executor, ("python", "from pkg.tool import f\nprint(f())"))).output.endswith("7\n")
    assert (
        await execute(each_executor, ("sh", "#filename: /workspace/run.sh\necho $0"))
    ).output == "/workspace/run.sh\n"


@pytest.mark.parametrize("name", ["../x.py", "/etc/x.py", "/tmp/x.py", "a/../../x.py", ".", "", "/workspace", "dir/"])
async def test_a_file_name_that_leads_out_is_refused(executor: SandboxCodeExecutor, name: str) -> None:
    result = await execute(executor, ("python", f"# filename: {name}\nprint('ran')"), ("python", "print('ran')"))
    assert (result.exit_code, result.code_file) == (1, None)
    assert result.output.startswith("Filename is not in the workspace")


async def test_a_file_name_is_not_led_out_by_a_link(executor: SandboxCodeExecutor) -> None:
    await execute(executor, ("sh", "ln -s /tmp way"))
    result = await execute(executor, ("python", "# filename: way/x.py\nprint('ran')"))
    assert (result.exit_code, "ran" in result.output) == (1, False)


@pytest.mark.parametrize(
    ("language", "words"),
    [
        ("powershell", "PowerShell is not supported"),
        ("pwsh", "PowerShell is not supported"),
        ("", "has no language"),
        ("cobol", "unknown language 'cobol'; available: python"),
    ],
)
async def test_a_language_that_there_is_not_is_told_to_the_model(
    executor: SandboxCodeExecutor, language: str, words: str
) -> None:
    result = await execute(executor, ("python", "print('before', end='')"), (language, "x"))
    assert result.exit_code == 1
    assert words in result.output
    assert result.output.startswith("before\n")


async def test_other_languages_run_too(each_executor: SandboxCodeExecutor) -> None:
    source = '// filename: greet.c\n#include <stdio.h>\nint main(void) { puts("hello"); return 3; }'
    result = await execute(each_executor, ("c", source))
    assert (result.exit_code, result.output) == (3, "hello\n")
    assert (await execute(each_executor, ("sh", "head -1 greet.c"))).output == "// filename: greet.c\n"


async def test_code_that_is_no_text_is_told_to_the_model(executor: SandboxCodeExecutor) -> None:
    assert "NUL byte" in (await execute(executor, ("python", "x = 1\0"))).output


async def test_no_blocks_are_a_mistake(executor: SandboxCodeExecutor) -> None:
    with pytest.raises(ValueError, match=r"No code blocks to execute\."):
        await execute(executor)


@pytest.mark.parametrize("delete", [True, False])
async def test_files_of_unnamed_blocks_are_deleted_if_wanted(delete: bool) -> None:
    async with SandboxCodeExecutor(delete_tmp_files=delete) as executor:
        await execute(executor, ("python", "1 / 0"))
        await execute(executor, ("python", "# filename: named.py\npass"))
        names = {entry.name for entry in await executor.sandbox.files.list()}
    assert "named.py" in names
    assert len(names) == (1 if delete else 2)


# Limits, as the model is told of them


async def test_a_timeout_is_exit_code_124_and_says_so(make: Make) -> None:
    async with make(timeout=1) as executor:
        result = await execute(executor, ("python", "print('begun')\nwhile True: pass"), ("sh", "echo never"))
        assert (result.exit_code, result.status, result.cause) == (124, Status.TIMEOUT, Cause.WALL_TIME)
        assert result.output.startswith("begun\nTimeout: it ran longer than 1s")
        assert (await execute(executor, ("sh", "echo on"))).output == "on\n"


async def test_memory_is_limited_for_real(make: Make) -> None:
    async with make(mem_limit="64m") as executor:
        result = await execute(executor, ("python", "print('begun')\nx = bytearray(10**9)"))
    assert (result.exit_code, result.cause) == (137, Cause.MEMORY)
    assert "Resource limit exceeded: it needed more than 64M of memory" in result.output


async def test_processes_and_open_files_are_limited_for_real(make: Make) -> None:
    crowd = "import os, time\nfor n in range(40):\n    if os.fork() == 0:\n        time.sleep(60)\n"
    async with make(extra_docker_args={"pids-limit": 20}, ulimits=["nofile=32:64"]) as executor:
        assert (await execute(executor, ("python", crowd))).cause is Cause.PROCESSES
        assert (await execute(executor, ("sh", "ulimit -n"))).output == "32\n"


async def test_tmp_is_as_small_as_asked() -> None:
    fill = "import os\nwith open('{}/x', 'wb') as f:\n    f.write(bytes(2 * 1024 * 1024))\n"
    async with SandboxCodeExecutor(tmpfs={"/tmp": "size=1m"}) as executor:
        assert (await execute(executor, ("python", fill.format("/tmp")))).cause is Cause.DISK
        assert (await execute(executor, ("python", fill.format(".")))).exit_code == 0


async def test_a_full_workspace_is_told_to_the_model() -> None:
    policy = Policy(filesystem={"workspace": {"size": "64K"}})
    async with SandboxCodeExecutor(policy=policy) as executor:
        result = await execute(executor, ("python", "#" * 100_000))
    assert (result.exit_code, result.status) == (126, Status.DENIED)
    assert "the workspace is full" in result.output


async def test_what_docker_would_have_to_be_told_holds_anyway(executor: SandboxCodeExecutor) -> None:
    attempts = [
        ("import socket\nsocket.create_connection(('203.0.113.10', 443), 5)", "Network is unreachable"),
        ("open('/usr/x', 'w')", "Read-only file system"),
        ("open('/etc/shadow')", "No such file"),
    ]
    for code, words in attempts:
        assert words in (await execute(executor, ("python", code))).output
    assert (await execute(executor, ("sh", "grep NoNewPrivs /proc/self/status"))).output == "NoNewPrivs:\t1\n"
    assert (await execute(executor, ("sh", "id -u"))).output != "0\n"


async def test_variables_reach_the_code_and_no_others(make: Make) -> None:
    async with make(environment={"GREETING": "hello"}) as executor:
        assert (await execute(executor, ("sh", "echo $GREETING"))).output == "hello\n"


# Folders of the host's


async def test_a_work_dir_is_shared_with_the_host(make: Make, folder: Path) -> None:
    async with make(work_dir=folder) as executor:
        (folder / "in.txt").write_text("from the host")
        result = await execute(
            executor, ("python", "# filename: copy.py\nopen('out.txt', 'w').write(open('in.txt').read())")
        )
        assert (result.exit_code, result.code_file) == (0, str(folder / "copy.py"))
        assert (folder / "out.txt").read_text() == "from the host"
    assert sorted(path.name for path in folder.iterdir()) == ["copy.py", "in.txt", "out.txt"]
    assert (folder / "out.txt").stat().st_uid == folder.stat().st_uid


async def test_a_work_dir_is_made_if_it_is_not_there(tmp_path: Path) -> None:
    async with SandboxCodeExecutor(work_dir=tmp_path / "new" / "coding") as executor:
        await execute(executor, ("sh", "touch made"))
    assert (tmp_path / "new" / "coding" / "made").exists()


async def test_volumes_have_their_modes_and_places(make: Make, tmp_path: Path) -> None:
    for name in ("ro", "rw", "inside"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "data.txt").write_text(name)
        own(tmp_path / name)
    volumes = {
        tmp_path / "ro": {"bind": "/data", "mode": "ro"},
        tmp_path / "rw": {"bind": "/out", "mode": "rw"},
        tmp_path / "inside": {"bind": "/workspace/deep/inside", "mode": "ro"},
    }
    async with make(volumes=volumes, work_dir="/workspace") as executor:
        result = await execute(executor, ("sh", "cat /data/data.txt deep/inside/data.txt; echo x > /out/new.txt"))
        assert (result.exit_code, result.output) == (0, "roinside")
        for place in ("/data/data.txt", "deep/inside/data.txt"):
            assert "Read-only file system" in (await execute(executor, ("python", f"open('{place}', 'a')"))).output
    assert (tmp_path / "rw" / "new.txt").read_text() == "x\n"


async def test_a_work_dir_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OptionError, match=r"work_dir: .* cannot be made"):
        await SandboxCodeExecutor(work_dir=tmp_path / "file").start()


async def test_an_image_needs_containers() -> None:
    with pytest.raises(FumehoodError, match=r"docker|image"):
        await DockerCommandLineCodeExecutor("fumehood-test:none").start()


# Starting, stopping, cancelling


@asynccontextmanager
async def running(
    make: Make, folder: Path, token: CancellationToken, code: str
) -> AsyncIterator[tuple[SandboxCodeExecutor, Any]]:
    """An executor in the middle of a block. The block tells that it runs through a pipe in its work_dir."""
    os.mkfifo(folder / "ready")
    own(folder)
    async with make(work_dir=folder) as executor:
        blocks = [CodeBlock(code="echo first", language="sh"), CodeBlock(code=code, language="python")]
        call = asyncio.create_task(executor.execute_code_blocks(blocks, token))
        await asyncio.to_thread((folder / "ready").read_bytes)
        yield executor, call


@pytest.mark.parametrize("from_thread", [True, False])
async def test_a_token_ends_the_run_with_all_that_it_started(make: Make, folder: Path, from_thread: bool) -> None:
    token, mark = CancellationToken(), secrets.token_hex(8)
    child = f"import subprocess; subprocess.Popen(['sh', '-c', 'sleep 600; : {mark}'])"
    async with running(make, folder, token, f"{child}\n{READY}") as (executor, call):
        # A new program has begun a moment before its command line can be read.
        wait_until(lambda: has_process(mark), 10.0, "the child runs")
        if from_thread:
            thread = threading.Thread(target=token.cancel)
            thread.start()
            await asyncio.to_thread(thread.join)
        else:
            token.cancel()
        result = await call
        assert not has_process(mark)
        assert (result.exit_code, result.status) == (1, Status.CANCELLED)
        assert result.output == "first\nCode execution was cancelled."
        assert (await execute(executor, ("sh", "echo on"))).output == "on\n"


async def test_a_token_that_is_cancelled_already_lets_nothing_begin(each_executor: SandboxCodeExecutor) -> None:
    token = CancellationToken()
    token.cancel()
    result = await each_executor.execute_code_blocks([CodeBlock(code="touch traces", language="sh")], token)
    assert (result.status, result.code_file) == (Status.CANCELLED, None)
    assert await each_executor.sandbox.files.list() == []


async def test_cancelling_the_task_is_no_result(make: Make, folder: Path) -> None:
    async with running(make, folder, CancellationToken(), READY) as (_, call):
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call


@pytest.mark.parametrize("how", ["stop", "restart"])
async def test_what_runs_is_ended_by(make: Make, how: str, folder: Path) -> None:
    async with running(make, folder, CancellationToken(), READY) as (executor, call):
        await getattr(executor, how)()
        assert (await call).status is Status.CANCELLED


async def test_a_restart_keeps_files_and_runs_the_init_command_again(make: Make) -> None:
    async with make(init_command="echo begun >> log; export X=1") as executor:
        await execute(executor, ("sh", "echo block >> log"))
        await executor.restart()
        assert (await execute(executor, ("sh", "cat log"))).output == "begun\nblock\nbegun\n"


def lose_container(executor: SandboxCodeExecutor) -> None:
    label = f"label=fumehood.policy={executor.policy.digest}"
    (container,) = engine.docker(engine.folder(), "ps", "--quiet", "--filter", label).stdout.split()
    assert engine.docker(engine.folder(), "kill", container).returncode == 0


async def test_a_restart_brings_back_a_sandbox_that_was_lost(make: Make, backend: str) -> None:
    before = set(cells_of(os.getpid()))
    async with make(mem_limit="214m") as executor:
        await execute(executor, ("sh", "touch lost"))
        if backend == "docker":
            lose_container(executor)
        else:
            (cell,) = set(cells_of(os.getpid())) - before
            os.kill(cell, signal.SIGKILL)
            wait_until(lambda: not is_alive(cell), 2.0, "the cell is gone")
        await executor.restart()
        assert (await execute(executor, ("sh", "ls"))).exit_code == 0


async def test_an_init_command_that_fails_is_an_error_and_nothing_stays_open() -> None:
    executor = SandboxCodeExecutor(init_command="echo no >&2; exit 3")
    with pytest.raises(OptionError, match=r"init_command: failed in the sandbox \(exit code 3\): no"):
        await executor.start()
    with pytest.raises(ExecutorError, match="is not running"):
        await execute(executor, ("sh", "true"))


async def test_an_executor_that_is_not_running_says_so() -> None:
    executor = SandboxCodeExecutor()
    for attempt in (lambda: execute(executor, ("sh", "true")), executor.restart):
        with pytest.raises(ValueError, match=r"Container is not running\. Must first be started"):
            await attempt()
    await executor.stop()


async def test_an_executor_can_be_started_again_and_begins_empty(make: Make) -> None:
    executor = make()
    for _ in range(2):
        await executor.start()
        await executor.start()
        assert await executor.sandbox.files.list() == []
        await execute(executor, ("sh", "touch file"))
        await executor.stop()
        await executor.stop()


async def test_calls_may_run_side_by_side(each_executor: SandboxCodeExecutor) -> None:
    meet = "import os, sys\nopen('{}', 'w').close()\nwhile not os.path.exists('{}'): pass\nprint('met')"
    results = await asyncio.gather(
        execute(each_executor, ("python", meet.format("a", "b"))),
        execute(each_executor, ("python", meet.format("b", "a"))),
    )
    assert [result.output for result in results] == ["met\n", "met\n"]


def test_an_executor_may_be_made_anywhere_and_used_in_other_loops() -> None:
    made: list[SandboxCodeExecutor] = []
    thread = threading.Thread(target=lambda: made.append(SandboxCodeExecutor()))
    thread.start()
    thread.join()
    asyncio.run(made[0].start())
    assert asyncio.run(execute(made[0], ("sh", "echo hello"))).output == "hello\n"
    asyncio.run(made[0].stop())


# A folder of the host's, which AutoGen's executor shows at /workspace


async def test_what_is_written_to_workspace_is_in_work_dir(make: Make, folder: Path) -> None:
    (folder / "given").write_text("from outside")
    async with make(work_dir=folder, timeout=20) as executor:
        assert (await execute(executor, ("sh", "cat /workspace/given"))).output == "from outside"
        made = "mkdir -p /workspace/sub; echo 1 > /workspace/sub/n; echo 2 > /workspace/.hidden; echo 3 > here"
        assert (await execute(executor, ("sh", made))).output == ""
        assert (folder / "sub" / "n").read_text() == "1\n"
        assert (folder / ".hidden").read_text() == "2\n"
        again = "cat /workspace/sub/n .hidden /workspace/here; echo 4 > /workspace/sub/n"
        assert (await execute(executor, ("sh", again))).output == "1\n2\n3\n"
    assert (folder / "sub" / "n").read_text() == "4\n"


async def test_a_name_that_is_in_both_folders_is_told_to_the_model(make: Make, folder: Path) -> None:
    async with make(work_dir=folder, timeout=20) as executor:
        result = await execute(executor, ("sh", "echo here > twice; echo there > /workspace/twice"))
        assert (result.exit_code, result.output) == (0, "/workspace is not /work, and both have: twice\n")
        assert (folder / "twice").read_text() == "here\n"


async def test_autogens_attributes_and_warnings_are_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executor = SandboxCodeExecutor(work_dir=folder, bind_dir=folder, timeout="5s")
    assert (executor.work_dir, executor.bind_dir, executor.timeout) == (folder, folder, 5.0)
    monkeypatch.chdir(folder)
    with pytest.warns(DeprecationWarning, match="Using the current directory as work_dir is deprecated"):
        SandboxCodeExecutor(work_dir=".")


# Functions of the caller's


@with_requirements(global_imports=["math"])
def hypotenuse(a: float, b: float) -> float:
    """The longest side."""
    return math.hypot(a, b)  # type: ignore[name-defined]  # noqa: F821


def broken() -> int:
    return 1


@pytest.mark.parametrize("options", [{}, {"functions_module": "own"}])
async def test_blocks_can_import_the_callers_functions(options: dict[str, Any]) -> None:
    async with SandboxCodeExecutor(functions=[hypotenuse], **options) as executor:
        code = f"from {executor.functions_module} import hypotenuse\nprint(hypotenuse(3, 4))"
        assert (await execute(executor, ("python", code))).output == "5.0\n"


async def test_functions_that_cannot_be_loaded_are_an_error() -> None:
    unloadable = with_requirements(global_imports=["no_such_module"])(broken)
    with pytest.raises(OptionError, match=r"(?s)functions: failed in the sandbox.*no_such_module"):
        await SandboxCodeExecutor(functions=[unloadable]).start()


# AutoGen's own parts


async def test_autogens_agent_writes_code_runs_it_and_reflects(executor: SandboxCodeExecutor) -> None:
    model = ReplayChatCompletionClient(
        [
            "First try:\n```python\nprint(undefined)\n```",
            '{"retry": true, "reason": "a name is missing"}',
            "Again:\n```python\nopen('n.txt', 'w').write('42')\n```\n```sh\ncat n.txt\n```",
            "The answer is 42.",
        ],
        model_info={
            "vision": False,
            "function_calling": False,
            "json_output": True,
            "structured_output": True,
            "family": "unknown",
        },
    )
    agent = CodeExecutorAgent("coder", executor, model_client=model, approval_func=approve, max_retries_on_error=1)
    told = [message async for message in agent.run_stream(task="Compute it.")]
    results = [message.result for message in told if isinstance(message, CodeExecutionEvent)]
    assert [result.exit_code for result in results] == [1, 0]
    assert "NameError: name 'undefined' is not defined" in results[0].output
    assert results[1].output == "42"
    assert isinstance(told[-1], TaskResult)
    assert told[-1].messages[-1].to_text() == "The answer is 42."


async def test_autogens_agent_runs_what_others_wrote(each_executor: SandboxCodeExecutor) -> None:
    agent = CodeExecutorAgent("runner", each_executor, approval_func=approve)
    team = RoundRobinGroupChat([agent], termination_condition=TextMentionTermination("hello from"), max_turns=2)
    outcome = await team.run(task=TextMessage(content="```python\nprint('hello', 'from')\n```", source="user"))
    assert outcome.messages[-1].to_text() == "hello from\n"


async def test_blocks_that_the_policy_asks_about_run_after_a_yes_for_each() -> None:
    asked: list[str] = []

    def decide(request: ApprovalRequest) -> ApprovalResponse:
        asked.append(request.code)
        return ApprovalResponse(approved="rm" not in request.code, reason="it removes files")

    policy = {"approvals": [{"tool": "shell"}]}
    async with SandboxCodeExecutor(policy=policy, approval_func=decide) as executor:
        agent = CodeExecutorAgent("runner", executor, approval_func=approve)
        text = "```python\nopen('n', 'w').write('1')\n```\n```sh\ncat n\n```\n```sh\nrm n\n```\n```sh\nls\n```"
        told = await agent.run(task=TextMessage(content=text, source="user"))
        kinds = [record.kind for record in AuditLog.default().find(Query(kind="approval"))][-5:]
    assert [code.strip() for code in asked] == ["cat n", "rm n"]
    assert (
        told.messages[-1]
        .to_text()
        .endswith("shell: not approved: denied by AutoGen's approval_func: it removes files\n")
    )
    assert kinds == ["approval.asked", "approval.given", "approval.used", "approval.asked", "approval.denied"]


@pytest.mark.parametrize("answer", [RuntimeError("broken"), None, ApprovalResponse(approved=False, reason="no")])
async def test_a_block_without_a_yes_leaves_no_trace(answer: object) -> None:
    async def decide(request: ApprovalRequest) -> ApprovalResponse:
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[return-value]

    async with SandboxCodeExecutor(policy={"approvals": [{"tool": "*"}]}, approval_func=decide) as executor:
        told = await executor.execute_code_blocks([CodeBlock(code="print(1)", language="python")], CancellationToken())
        assert (told.exit_code, told.status) == (126, "denied")
        assert await executor.sandbox.files.list() == []
    with pytest.raises(OptionError, match="approval_func"):
        executor.dump_component()
    with pytest.raises(UnenforceableError, match="approvals"):
        await SandboxCodeExecutor(policy={"approvals": [{"tool": "*"}]}).start()


async def test_autogens_agent_is_cancelled_in_the_middle(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "ready")
    token = CancellationToken()
    async with SandboxCodeExecutor(work_dir=tmp_path) as executor:
        agent = CodeExecutorAgent("runner", executor, approval_func=approve)
        message = TextMessage(content=f"```python\n{READY}\n```", source="user")
        call = asyncio.create_task(agent.on_messages([message], token))
        await asyncio.to_thread((tmp_path / "ready").read_bytes)
        token.cancel()
        assert (await call).chat_message.to_text().endswith("Code execution was cancelled.")


async def test_autogens_tool_and_component_store_take_it() -> None:
    tool = PythonCodeExecutionTool(SandboxCodeExecutor(mem_limit="128m"))
    again = PythonCodeExecutionTool.load_component(tool.dump_component())
    executor = again._executor  # pyright: ignore[reportPrivateUsage]
    assert isinstance(executor, SandboxCodeExecutor)
    assert executor.policy.resources.memory == 128 * 1024 * 1024
    async with executor:
        told = await again.run(CodeExecutionInput(code="print(6 * 7)"), CancellationToken())
    assert (told.success, told.output) == (True, "42\n")
