"""The sandbox provider under Inspect's own suite for such providers, and in an evaluation with a scripted model."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio.lowlevel
import engine
import pytest
from inspect_ai.model import ModelUsage
from inspect_ai.tool import bash_session, text_editor
from inspect_ai.tool._sandbox_tools_utils.sandbox import sandbox_with_injected_tools
from inspect_ai.util import (
    OutputLimitExceededError,
    SandboxEnvironment,
    SandboxEnvironmentSpec,
    SandboxUnavailableError,
    SandboxUserUnsupportedError,
    Store,
)
from inspect_ai.util._sandbox import self_check
from inspect_ai.util._sandbox._cli import SANDBOX_CLI, SANDBOX_TOOLS_DIR
from inspect_ai.util._sandbox.context import (
    sandbox_default_context_var,
    sandbox_environments_context_var,
    sandbox_with_environments_context_var,
)
from inspect_ai.util._sandbox.events import SandboxEnvironmentProxy
from inspect_ai.util._sandbox.registry import registry_find_sandboxenv
from inspect_ai.util._sandbox.self_check import *  # noqa: F403
from inspect_ai.util._store import init_subtask_store
from live.loaded_hood import run_python
from requirements import require

from fumehood import Policy, PolicyError, Status, UsageError
from fumehood.integrations.adapter import default_policy
from fumehood.integrations.inspect_ai import FumehoodSandboxEnvironment
from fumehood.integrations.inspect_ai.tool_server import ToolServer

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.adapter(
        "test_an_evaluation_runs_in_sandboxes", "test_inspects_text_editor_and_bash_session_work_as_a_task_has_them"
    ),
]

EXAMPLE = Path(__file__).parents[2] / "examples" / "inspect_ai" / "evaluate.py"
EVALUATED = ["success 1.0", "bash: cat: /etc/shadow: No such file or directory", "", "19", "23", "python: 42"]
EXPECTED_FAILURES = {
    "test_exec_as_user": "it adds a user as root; nobody is root in a sandbox, and wishes for it are refused by name",
}


@pytest.fixture(scope="module", params=["native", *(["docker"] if os.geteuid() == 0 else [])])
def backend(request: pytest.FixtureRequest) -> str:
    if request.param == "docker":
        require(engine.missing() is None, engine.missing() or "")
    return request.param


@pytest.fixture(scope="module")
def policy(backend: str) -> Policy:
    return default_policy(None).override({"backend": backend})


@pytest.fixture(scope="module")
async def environment(policy: Policy) -> AsyncIterator[FumehoodSandboxEnvironment]:
    """One for all checks, which clean up after themselves."""
    found = await FumehoodSandboxEnvironment.sample_init("task", policy, {})
    yield found["default"].as_type(FumehoodSandboxEnvironment)
    await FumehoodSandboxEnvironment.sample_cleanup("task", policy, found, False)


@pytest.fixture
def sandbox_env(
    environment: FumehoodSandboxEnvironment, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> FumehoodSandboxEnvironment:
    """What Inspect's checks ask for."""
    # They wait for processes to end. Here nothing may be left when a command returns, so there is nothing to wait for.
    monkeypatch.setattr(self_check, "anyio", SimpleNamespace(sleep=lambda seconds: anyio.lowlevel.checkpoint()))
    reason = EXPECTED_FAILURES.get(request.node.originalname)
    if reason:
        request.applymarker(pytest.mark.xfail(reason=reason, raises=SandboxUserUnsupportedError, strict=True))
    return environment


def test_the_suite_is_whole_and_every_expected_failure_is_in_it() -> None:
    assert len(self_check.__all__) >= 44
    assert set(self_check.__all__) >= EXPECTED_FAILURES.keys()


async def test_no_other_user_can_be_had(environment: FumehoodSandboxEnvironment) -> None:
    for user in ("root", "0", "nobody"):
        with pytest.raises(SandboxUserUnsupportedError, match="never as"):
            await environment.exec(["whoami"], user=user)
    assert (await environment.exec(["whoami"], user="sandbox")).success


async def test_the_applications_environment_is_not_there(
    environment: FumehoodSandboxEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    assert "sk-secret" not in (await environment.exec(["env"])).stdout


async def test_a_program_cannot_pass_for_one_that_could_not_be_started(environment: FumehoodSandboxEnvironment) -> None:
    for command in (["sh", "-c", "echo sh: Permission denied >&2; exit 126"], ["/tmp/liar"]):
        await environment.write_file("/tmp/liar", "#!/bin/sh\necho /tmp/liar: Permission denied >&2; exit 126\n")
        await environment.exec(["chmod", "+x", "/tmp/liar"])
        done = await environment.exec(command)
        assert (done.success, done.returncode) == (False, 126)
        assert done.stderr.endswith("Permission denied\n")


async def test_a_path_of_the_host_is_the_sandboxs(environment: FumehoodSandboxEnvironment, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of the host")
    with pytest.raises(FileNotFoundError):
        await environment.read_file(str(tmp_path / "secret"))
    with pytest.raises(PermissionError, match="only from there files may leave"):
        await environment.read_file("/etc/passwd")
    with pytest.raises(OSError, match="leads out of the workspace"):
        await environment.read_file("../etc/passwd")
    await environment.write_file(str(tmp_path / "secret"), "inside")
    assert (tmp_path / "secret").read_text() == "of the host"


async def test_a_time_limit_beyond_the_policys_is_the_policys(backend: str) -> None:
    policy = Policy(backend=backend, resources={"timeout": 1, "output": "1K"}, commands={"allow": ["sleep", "yes"]})
    found = await FumehoodSandboxEnvironment.sample_init("task", policy, {})
    environment = found["default"]
    with pytest.raises(TimeoutError, match="longer than 1s"):
        await environment.exec(["sleep", "60"], timeout=30)
    with pytest.raises(OutputLimitExceededError, match="1K"):
        await environment.exec(["yes"])
    denied = await environment.exec(["rm", "x"])
    assert (denied.success, denied.returncode) == (False, 126)
    assert denied.stderr.startswith("denied: rm x: rm is not allowed")
    await environment.write_file("x", "text")
    with pytest.raises(PermissionError, match=r"filesystem\.outputs"):
        await environment.read_file("x")
    await FumehoodSandboxEnvironment.sample_cleanup("task", policy, found, False)
    with pytest.raises(SandboxUnavailableError, match="closed"):
        await environment.exec(["true"])
    with pytest.raises(SandboxUnavailableError, match="closed"):
        await environment.write_file("x", "")


async def tools_in(environment: SandboxEnvironment) -> SandboxEnvironment:
    return await sandbox_with_injected_tools(sandbox=environment)


async def ask(environment: SandboxEnvironment, method: str, **parameters: object) -> Any:
    """As Inspect's tools speak to their server."""
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters}
    done = await environment.exec([SANDBOX_CLI, "exec"], input=json.dumps(request))
    return json.loads(done.stdout)["result"]


async def test_inspects_tool_server_outlives_its_command_and_keeps_state(
    environment: FumehoodSandboxEnvironment,
) -> None:
    await tools_in(environment)
    name = (await ask(environment, "bash_session_new_session"))["session_name"]
    script = "kept=$((6 * 7)); cd /tmp; echo $kept $PWD\n"
    for expected, line in (("42 /tmp", script), ("again 42", "echo again $kept\n")):
        told, output = "", {"session_name": name, "input": line, "wait_for_output": 5, "idle_timeout": 0.2}
        while expected not in told:
            told += await ask(environment, "bash_session", **output)
            output.pop("input", None)
    assert await ask(environment, "text_editor", command="create", path="/workspace/made", file_text="text")
    assert await environment.read_file("/workspace/made") == "text"
    remote = SandboxEnvironmentProxy(environment).exec_remote(["sh", "-c", "echo out"], stream=False)
    assert (await remote).stdout == "out\n"


async def test_inspects_text_editor_and_bash_session_work_as_a_task_has_them(
    environment: FumehoodSandboxEnvironment,
) -> None:
    sandbox_environments_context_var.set({"default": environment})
    sandbox_with_environments_context_var.set({})
    sandbox_default_context_var.set("default")
    init_subtask_store(Store())
    edit, shell = text_editor(), bash_session()
    made = await edit(command="create", path="/workspace/a.sh", file_text="sum=$((6 * 7))\n")
    assert "created successfully" in made
    assert "7))" in await edit(command="view", path="/workspace/a.sh")
    told = await shell(action="type_submit", input=". /workspace/a.sh; echo it is $sum")
    while "it is 42" not in told:
        told += await shell(action="read")
    await shell(action="restart")
    told = await shell(action="type_submit", input="echo it is ${sum:-forgotten}")
    while "it is forgotten" not in told:
        told += await shell(action="read")


async def test_a_tool_server_that_ran_out_of_time_is_started_anew(backend: str) -> None:
    policy = default_policy({"backend": backend, "resources": {"timeout": 10}})
    found = await FumehoodSandboxEnvironment.sample_init("task", policy, {})
    environment = found["default"].as_type(FumehoodSandboxEnvironment)
    await tools_in(environment)
    server = environment.sandbox._runs.background[-1]  # pyright: ignore[reportPrivateUsage]
    assert (await server.wait()).status is Status.TIMEOUT
    assert (await ask(environment, "remote_version")).startswith("Server: ")
    await FumehoodSandboxEnvironment.sample_cleanup("task", policy, found, False)


async def test_a_tool_server_that_is_not_there_is_a_failed_command(environment: FumehoodSandboxEnvironment) -> None:
    fresh = ToolServer(environment.sandbox)
    await environment.exec(["mv", SANDBOX_TOOLS_DIR, "/tmp/aside"])
    failure = await fresh.start()
    await environment.exec(["mv", "/tmp/aside", SANDBOX_TOOLS_DIR])
    assert failure is not None
    assert failure.exit_code == 127


async def test_inspect_finds_the_provider_by_its_entry_point() -> None:
    assert registry_find_sandboxenv("fumehood") is FumehoodSandboxEnvironment


def test_a_policy_goes_into_inspects_logs_and_comes_back(policy: Policy) -> None:
    specification = SandboxEnvironmentSpec("fumehood", policy)
    assert SandboxEnvironmentSpec.model_validate_json(specification.model_dump_json()).config == policy


async def test_a_configuration_that_is_no_policy_is_refused_before_the_first_sample(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text("resources: {memroy: 1G}")
    with pytest.raises(PolicyError, match="did you mean memory"):
        await FumehoodSandboxEnvironment.task_init("task", str(tmp_path / "policy.yaml"))
    with pytest.raises(UsageError, match="configured by a policy, not by a ModelUsage"):
        await FumehoodSandboxEnvironment.task_init("task", ModelUsage())


def test_an_evaluation_runs_in_sandboxes(backend: str, tmp_path: Path) -> None:
    """In a process of its own: Inspect leaves streams open."""
    (tmp_path / "policy.yaml").write_text(f"backend: {backend}")
    done = run_python(EXAMPLE, tmp_path / "policy.yaml", kind="frameworks", cwd=tmp_path)
    assert done.stdout.splitlines() == EVALUATED, done.stderr
