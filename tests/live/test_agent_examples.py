"""The agents and teams of examples/agent, in sandboxes of the machine and in containers."""

from __future__ import annotations

import importlib.util
import os
import secrets
from pathlib import Path
from types import ModuleType

import pytest
from engine import BACKENDS, missing
from live.loaded_hood import run_python
from outside import SECRET_VARIABLE, open_outside
from requirements import require

from fumehood import Policy
from fumehood.agents import Stop, TaskDone, TaskRequest, TaskResult, ToolMessage
from fumehood.audit import AuditLog, Query
from fumehood.runtime import LocalRuntime

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "agent"
PNG = b"\x89PNG\r\n\x1a\n"

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["native", *(["docker"] if os.geteuid() == 0 else [])])
def backend(request: pytest.FixtureRequest) -> str:
    if request.param in BACKENDS:
        require(missing() is None, missing() or "")
    return request.param


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def results(result: TaskResult) -> list[str]:
    return [message.text for message in result.messages if isinstance(message, ToolMessage)]


async def test_the_fibonacci_team(backend: str) -> None:
    team = load("fibonacci_team").make_team(Policy(backend=backend, resources={"memory": "512M", "cpus": 0.5}))
    result = await team.run("Write Python code for the first 10 Fibonacci numbers, and run it.")
    assert results(result) == ["Success.\nstdout:\n0 1 1 2 3 5 8 13 21 34"]
    assert [message.source for message in result.messages if message.text and message.kind == "assistant"] == [
        *("writer", "executor", "writer", "critic"),
    ]
    assert result.stop_reason.kind is Stop.CONDITION
    assert result.stop_reason.detail == "critic said 'APPROVED'"


async def test_the_analyst(backend: str, tmp_path: Path) -> None:
    policy = Policy.load(FOLDER.parent / "analyst" / "policy.yaml").override({"backend": backend})
    result = await load("analyst").make_agent(policy, tmp_path).run("How many units? Draw it.")
    assert "north" in results(result)[0]
    assert "shown: image/png" in results(result)[1]
    assert "Read-only file system" in results(result)[2]
    assert {artifact.path for artifact in result.artifacts} == {"out/units.csv", "out/units.png"}
    assert (tmp_path / "out" / "units.png").read_bytes().startswith(PNG)
    assert (tmp_path / "out" / "units.csv").read_text().startswith("region,units\n")


async def test_the_web_reader(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    token = f"token-{secrets.token_hex(16)}"
    monkeypatch.setenv(SECRET_VARIABLE, token)
    with open_outside() as outside:
        policy = Policy(backend=backend, network={"allow": outside.rules()}, secrets=outside.secrets())
        page = f"https://token.example:{outside.secure.port}/repos/x"
        agent = load("web_reader").make_agent(policy, page, "https://elsewhere.example/")
        result = await agent.run("What is the newest on that page?")
        asked = outside.secure.requests
    assert [(each["method"], each["path"]) for each in asked] == [("GET", "/repos/x")]
    assert asked[0]["headers"]["Authorization"] == f"Bearer {token}"
    read, variables, sent, went = results(result)
    assert '"path": "/repos/x"' in read
    assert SECRET_VARIABLE not in variables
    assert "POST" in sent
    assert "no rule opens this name" in went
    assert token not in str(result.messages)


async def test_the_shell_agent(backend: str, tmp_path: Path) -> None:
    example = load("shell")
    result = await example.make_agent(example.POLICY.override({"backend": backend}), example.ask).run("What is there?")
    wrote, looked, removed, fetched = results(result)
    assert wrote == "Wrote 17B to notes/todo.txt."
    assert looked == "Success.\nstdout:\nwater the plants"
    assert removed == "Denied: denied by alice: nothing is to be removed. Do not try the same again."
    assert "Denied" in fetched
    assert result.stop_reason.kind is Stop.DONE


async def test_a_writer_and_an_executor_by_messages(tmp_path: Path) -> None:
    log = AuditLog.at(tmp_path / "audit")
    async with LocalRuntime(audit=log) as runtime:
        await load("messages").prepare(runtime, Policy(resources={"memory": "256M"}))
        done = await runtime.send(TaskRequest(text="What do the squares add up to?"), to="writer", reply=TaskDone)
    assert (done.stop, done.usage.turns) == (Stop.DONE, 3)
    sent = [record.data for record in log.find(Query(kind="message.sent"))]
    assert [(each.get("sender"), each["to"]) for each in sent] == [
        (None, "writer/default"),
        ("writer/default", "executor/default"),
    ]
    (denied,) = log.find(Query(kind="grant.denied"))
    assert denied.data == {"action": "send to", "target": "press/office"}
    assert len(list(log.find(Query(kind="run.finished")))) == 1


@pytest.mark.parametrize("name", ["solve", "fibonacci_team", "shell", "messages"])
def test_an_example_runs_as_a_program(name: str, tmp_path: Path) -> None:
    kept = {key: value for key, value in os.environ.items() if not key.endswith("_API_KEY")}
    place = {**kept, "FUMEHOOD_AUDIT": str(tmp_path / "audit"), "FUMEHOOD_APPROVALS": str(tmp_path / "approvals")}
    done = run_python(FOLDER / f"{name}.py", env=place)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = [line for line in done.stdout.splitlines() if len(line) > 40]
    assert name != "fibonacci_team" or len(lines) == len(set(lines)), "a message is printed more than once"
