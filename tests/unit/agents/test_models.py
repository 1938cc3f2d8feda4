"""Models by name, scripts, and recordings."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from unit.agents.model_server import ModelServer, failing, serving, text
from unit.agents.model_server import tool_call as called

from fumehood import UsageError
from fumehood.agents import (
    AssistantAgent,
    ModelFailure,
    RecordingModel,
    ReplayModel,
    ScriptedModel,
    Stop,
    call,
    find_model,
)
from fumehood.tools import PYTHON

pytestmark = pytest.mark.anyio

TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gtp-5", "Unknown model"),
        ("openai:gpt-5", "OPENAI_API_KEY"),
        ("anthropic:claude-sonnet-4-5", "ANTHROPIC_API_KEY"),
        ("record:tape", "write record:FILE:MODEL"),
        ("scripted:nowhere.yaml", "the script 'nowhere.yaml' cannot be read"),
        ("replay:nowhere.jsonl", "the recording 'nowhere.jsonl' cannot be read"),
    ],
)
def test_a_model_that_cannot_be_used_is_told_at_once(name: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(UsageError, match=words):
        find_model(name)


@pytest.mark.parametrize("name", ["ollama:qwen3", "x@http://127.0.0.1:1/v1", "openai-chat:x@https://h.example/v1"])
def test_servers_of_ones_own_need_no_key(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OLLAMA_BASE_URL", raising=False)
    assert find_model(name).name == name


async def test_a_model_of_pydantic_ai_is_taken_as_it_is() -> None:
    from pydantic_ai.messages import ModelResponse, TextPart
    from pydantic_ai.models.function import FunctionModel

    async def answer(messages: object, info: object):  # type: ignore[no-untyped-def]
        yield "hello"

    assert ModelResponse(parts=[TextPart("x")]).text == "x"
    assert (await AssistantAgent("x", FunctionModel(stream_function=answer)).run("hi")).text == "hello"  # type: ignore[arg-type]


def test_agents_and_scripts_need_nothing_of_pydantic_ai() -> None:
    heavy = "[name for name in sys.modules if name.startswith(('pydantic_ai', 'openai'))]"
    code = f"import sys, fumehood.agents, fumehood.agents.teams; print({heavy})"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_without_the_packages_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("fumehood.agents.models.remote")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pydantic_ai.direct", None)
    with pytest.raises(UsageError, match=r"pip install 'fumehood\[agents\]'"):
        find_model("x@http://127.0.0.1:1/v1")


async def test_a_script_is_a_file_too(tmp_path: Path) -> None:
    path = tmp_path / "script.yaml"
    path.write_text("- say: I look.\n  call: python\n  arguments: {code: print(1)}\n- say: done\n")
    result = await AssistantAgent("x", f"scripted:{path}", tools=[PYTHON]).run("go")
    assert result.text == "done"
    assert "1" in result.messages[2].text


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a: 1", "must be a list of steps"),
        ("- sya: x", "step 1 must be a mapping with `say`"),
        ("- say: x\n- say: 1", "step 2: `say` and `call` must be texts"),
        ("- arguments: {}", "belongs to a `call`"),
        ("- {}", "says and calls nothing"),
        ("- [", "cannot be read"),
    ],
)
def test_a_script_with_a_mistake_is_told_with_its_place(content: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "script.yaml"
    path.write_text(content)
    with pytest.raises(UsageError, match=words):
        ScriptedModel.load(path)


async def recorded(server: ModelServer, tape: Path) -> list[str]:
    server.answers[:] = [called("python", '{"code": "print(6 * 7)"}'), text("It is ", "42."), failing(500)]
    model = RecordingModel(find_model(server.model, api_key="key-of-this-server", settings={"max_retries": 0}), tape)
    agent = AssistantAgent("x", model, tools=[PYTHON])
    return [str((await agent.run(task)).stop_reason) for task in ("What is it?", "And then?")]


async def test_a_recording_answers_as_the_server_did(tmp_path: Path) -> None:
    tape = tmp_path / "tape.jsonl"
    with serving() as server:
        stops = await recorded(server, tape)
    assert tape.stat().st_mode & 0o777 == 0o600
    agent = AssistantAgent("x", f"replay:{tape}", tools=[PYTHON])
    result = await agent.run("What is it?")
    assert (result.text, str(result.stop_reason)) == ("It is 42.", stops[0])
    assert (result.usage.input_tokens, result.usage.output_tokens) == (22, 14)
    assert str((await agent.run("And then?")).stop_reason) == stops[1]


async def test_a_request_that_was_not_recorded_is_a_clear_failure(tmp_path: Path) -> None:
    tape = tmp_path / "tape.jsonl"
    with serving() as server:
        await recorded(server, tape)
    stop = (await AssistantAgent("x", ReplayModel(tape), tools=[PYTHON]).run("Something else?")).stop_reason
    assert (stop.kind, stop.failure) == (Stop.MODEL_FAILED, ModelFailure.UNRECORDED)
    assert "'Something else?'" in stop.detail
    assert f"record it anew with record:{tape}:MODEL" in stop.detail


async def test_no_secret_is_in_a_recording_and_it_replays_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "value-of-a-variable")
    tape = tmp_path / "tape.jsonl"
    task = f"use {TOKEN} and value-of-a-variable and known-to-us"
    secrets = {"ours": "known-to-us"}
    with serving() as server:
        server.answers[:] = [text(f"I use {TOKEN}")]
        connected = find_model(server.model, api_key="key-of-this-server")
        await AssistantAgent("x", RecordingModel(connected, tape, secrets=secrets)).run(task)
        assert "value-of-a-variable" in json.dumps(server.requests)
    written = tape.read_text()
    for secret in (TOKEN, "value-of-a-variable", "known-to-us", "key-of-this-server"):
        assert secret not in written
    assert (await AssistantAgent("x", ReplayModel(tape, secrets=secrets)).run(task)).stop_reason.kind is Stop.DONE


@pytest.mark.parametrize("line", ["{}", "no", '{"version": 1, "model": "x", "digest": "d", "request": {}, "extra": 1}'])
def test_a_file_that_is_no_recording_is_refused_with_its_line(line: str, tmp_path: Path) -> None:
    tape = tmp_path / "tape.jsonl"
    tape.write_text(f"{line}\n")
    with pytest.raises(UsageError, match=r"tape.jsonl:1: this is no line of a recording"):
        ReplayModel(tape)


def test_a_recording_of_another_version_is_refused(tmp_path: Path) -> None:
    tape = tmp_path / "tape.jsonl"
    tape.write_text('{"version": 7, "model": "x", "digest": "d", "request": {}}\n')
    with pytest.raises(UsageError, match="version 7 of the format is not known"):
        ReplayModel(tape)


def test_a_call_of_a_script_is_json() -> None:
    assert json.loads(call("python", code="x", timeout=None).arguments) == {"code": "x", "timeout": None}
