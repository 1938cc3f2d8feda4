"""`hood agent`: a model works in front of somebody, at a terminal or in a pipe, and what it does is in a sandbox."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from live.cli_host import assert_nothing_is_left, hood, open_hood, open_terminal

PROMPT = b"details ? "
SCRIPT = """
- say: I count.
  call: python
  arguments: {code: "import os\\nos.makedirs('out', exist_ok=True)\\nprint(open('out/n', 'w').write('12345'))"}
- call: shell
  arguments: {command: "rm -rf /tmp/x"}
- say: There are five.
- say: And nothing more.
"""
CAREFUL = "version: 1\nname: careful\nfilesystem: {outputs: ['out/**']}\ncommands: {allow: [ls, echo]}\n"


@pytest.fixture
def place(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "script.yaml").write_text(SCRIPT)
    (tmp_path / "policy.yaml").write_text(CAREFUL)
    (tmp_path / "asking.yaml").write_text(CAREFUL + "approvals: [{tool: python}]\n")
    (tmp_path / "endless.yaml").write_text("- call: python\n  arguments: {code: 'while True: pass'}\n- say: later\n")
    kept = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    return {
        **kept,
        "FUMEHOOD_APPROVALS": str(tmp_path / "approvals"),
        "FUMEHOOD_AUDIT": str(tmp_path / "audit"),
        "NO_COLOR": "1",
    }


def run(place: dict[str, str], folder: Path, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return hood("agent", *arguments, env=place, cwd=folder, stdin=stdin)


def events(done: subprocess.CompletedProcess[bytes]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_task_is_shown_as_it_happens(place: dict[str, str], tmp_path: Path) -> None:
    done = run(place, tmp_path, "run", "How many?", "--model", "scripted:script.yaml", "--policy", "policy.yaml")
    shown = done.stdout.decode()
    assert done.returncode == 0, done.stderr
    assert "I count.\n-> python\n   1 | import os\n" in shown
    assert "<- Success.\n   stdout:\n   5\n" in shown
    assert "file out/n (5B, application/octet-stream)\n" in shown
    assert (
        "-> shell\n   1 | rm -rf /tmp/x\n<- Denied by the policy, nothing was started: rm -rf /tmp/x: rm is not"
        in shown
    )
    assert shown.endswith("\nThere are five.\n")
    assert b"hood: done (3 turns, 2 calls, " in done.stderr


def test_a_task_is_json_lines_for_programs(place: dict[str, str], tmp_path: Path) -> None:
    arguments = ("--model", "scripted:script.yaml", "--policy", "policy.yaml", "--json", "--out", "taken")
    done = run(place, tmp_path, "run", "-", *arguments, stdin=b"How many?")
    told = events(done)
    assert [event["kind"] for event in told] == [
        *("task.started", "text", "tool.call", "tool.result", "artifact", "tool.call", "tool.result", "text"),
        "task.ended",
    ]
    result = told[-1]["result"]
    assert (result["stop_reason"], result["text"]) == ({"kind": "done"}, "There are five.")
    assert result["messages"][0]["text"] == "How many?"
    assert (tmp_path / "taken" / "out" / "n").read_text() == "12345"
    assert done.stderr == b""


def test_a_conversation_keeps_its_sandbox(place: dict[str, str], tmp_path: Path) -> None:
    done = run(place, tmp_path, "chat", "--model", "scripted:script.yaml", "--json", stdin=b"one\n\ntwo\n")
    assert [event["result"]["text"] for event in events(done) if event["kind"] == "task.ended"] == [
        "There are five.",
        "And nothing more.",
    ]
    kinds = hood("audit", "search", "--kind", "sandbox", "--json", env=place).stdout
    assert kinds.count(b'"sandbox.opened"') == 1


def test_another_end_than_done_is_an_exit_code_and_a_reason(place: dict[str, str], tmp_path: Path) -> None:
    done = run(place, tmp_path, "run", "x", "--model", "scripted:script.yaml", "--turns", "1")
    assert done.returncode == 1
    assert b"hood: budget: it may ask the model 1 times" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "x"], b"there is no model to ask: set ANTHROPIC_API_KEY or OPENAI_API_KEY, or say --model"),
        (["run", "x", "--model", "openai:gpt-5"], b"the model 'openai:gpt-5' needs a key: set OPENAI_API_KEY"),
        (["run", "x", "--model", "gpt5"], b"the model 'gpt5' cannot be used: Unknown model: gpt5"),
        (["run", " ", "--model", "scripted:script.yaml"], b"the task is empty"),
        (["run", "x", "--model", "scripted:script.yaml", "--tools", "pyton"], b"--tools: there is no tool 'pyton'"),
        (["run", "x", "--model", "scripted:script.yaml", "--turns", "0"], b"the budget's turns must be more than 0"),
        (["run", "x", "--model", "scripted:script.yaml", "--pause"], b"--pause needs --state FILE"),
        (
            ["run", "x", "--model", "scripted:script.yaml", "--state", "script.yaml"],
            b"--state 'script.yaml' cannot be read",
        ),
        (["resume", "--model", "scripted:script.yaml", "--state", "none"], b"there is no paused task"),
        (["run"], b"the following arguments are required: TASK; see `hood agent run --help`"),
        (["walk"], b"unknown 'walk'"),
    ],
)
def test_a_mistake_is_one_line_with_what_to_do(
    arguments: list[str], words: bytes, place: dict[str, str], tmp_path: Path
) -> None:
    done = run(place, tmp_path, *arguments)
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert done.stderr.count(b"hood: ") == 1


def test_without_the_packages_of_agents_the_error_says_what_to_install(place: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "pydantic_ai").mkdir()
    (tmp_path / "pydantic_ai" / "__init__.py").write_text("raise ImportError('not installed')")
    hidden = {**place, "PYTHONPATH": str(tmp_path), "OPENAI_API_KEY": "x"}
    done = run(hidden, tmp_path, "run", "x")
    assert done.returncode == 2
    assert b"needs packages that are not installed: pip install 'fumehood[agents]'" in done.stderr


def test_approvals_are_asked_for_at_the_terminal(place: dict[str, str], tmp_path: Path) -> None:
    arguments = (
        "run",
        "How many?",
        "--model",
        f"scripted:{tmp_path}/script.yaml",
        "--policy",
        f"{tmp_path}/asking.yaml",
    )
    with open_terminal("agent", *arguments, env=place) as terminal:
        terminal.wait_for(PROMPT)
        assert b"python asks for approval" in terminal.seen
        terminal.type(b"a")
        assert terminal.wait_for_end() == 0
    assert b"There are five." in terminal.seen


def test_a_task_that_waits_is_kept_and_goes_on_in_another_process(place: dict[str, str], tmp_path: Path) -> None:
    arguments = ("--model", "scripted:script.yaml", "--policy", "asking.yaml", "--state", "state.json", "--pause")
    first = run(place, tmp_path, "run", "How many?", *arguments)
    assert first.returncode == 1
    (waiting,) = json.loads(hood("approvals", "list", "--json", env=place).stdout)
    said = first.stderr.decode()
    assert "hood: approval_pending: python: not approved: a person has to approve it" in said
    assert f"with `hood approvals approve {waiting['id']}`" in said
    assert (tmp_path / "state.json").stat().st_mode & 0o777 == 0o600
    hood("approvals", "approve", waiting["id"], env=place)
    second = run(place, tmp_path, "resume", *arguments)
    assert second.returncode == 0, second.stderr
    assert second.stdout.endswith(b"There are five.\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_task_and_leaves_nothing(
    number: signal.Signals, place: dict[str, str], tmp_path: Path
) -> None:
    with open_hood(
        "agent", "run", "x", "--model", "scripted:endless.yaml", "--json", env=place, cwd=tmp_path
    ) as process:
        assert process.stdout is not None
        while json.loads(process.stdout.readline())["kind"] != "tool.call":
            pass
        process.send_signal(number)
        rest = process.stdout.read()
        assert process.wait(60) == 128 + number
    assert_nothing_is_left(process.pid)
    if number == signal.SIGINT:
        assert json.loads(rest.splitlines()[-1])["result"]["stop_reason"]["kind"] == "cancelled"


def test_what_a_model_writes_cannot_command_the_terminal(place: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "rude.yaml").write_text(
        '- say: "\\e]0;owned\\a\\e[2J hello"\n  call: "py\\ethon"\n  arguments: {code: "\\e[31mx"}\n'
        '- say: "\\e[8mbye"\n'
    )
    done = run(place, tmp_path, "run", "x", "--model", "scripted:rude.yaml")
    assert b"\x1b" not in done.stdout + done.stderr
    assert b"hello" in done.stdout


def test_a_reviewer_is_asked_first_and_what_it_leaves_open_waits_for_a_person(
    place: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "reviewed.yaml").write_text(CAREFUL + "approvals: [{tool: python, reviewer: true}]\n")
    (tmp_path / "reviewer.yaml").write_text("- say: I would rather not answer in the form.\n")
    words = ("--model", "scripted:script.yaml", "--reviewer", "scripted:reviewer.yaml", "count")
    paused = ("--pause", "--state", "state.json")
    done = hood("agent", "run", "--policy", "reviewed.yaml", *paused, *words, env=place, cwd=tmp_path)
    assert done.returncode == 1
    assert b"to go on: hood approvals approve" in done.stderr
    reviewed = hood("audit", "search", "--kind", "approval.reviewed", env=place, cwd=tmp_path).stdout.decode()
    assert "ask_person" in reviewed
    unused = hood("agent", "run", "--policy", "asking.yaml", *words, env=place, cwd=tmp_path)
    assert (unused.returncode, b"--reviewer has nothing to answer" in unused.stderr) == (2, True)
