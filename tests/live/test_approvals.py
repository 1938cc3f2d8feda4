"""Approvals as people give them: at a real terminal, with `hood approvals` in another process, and at the same time."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from live.approval_scenes import SCENES, play, same, scenes
from live.cli_host import SECONDS, Terminal, hood, open_hood, open_terminal, start

PROMPT = b"details ? "
POLICY = "version: 1\nname: careful\napprovals: [{{tool: python, expires: {}}}]\n"


@pytest.fixture
def place(tmp_path: Path) -> dict[str, str]:
    return {
        **os.environ,
        "FUMEHOOD_APPROVALS": str(tmp_path / "approvals"),
        "FUMEHOOD_AUDIT": str(tmp_path / "audit"),
        "NO_COLOR": "1",
    }


@pytest.fixture
def policy(tmp_path: Path) -> str:
    (tmp_path / "careful.yaml").write_text(POLICY.format("10m"))
    return str(tmp_path / "careful.yaml")


@contextmanager
def asked(place: dict[str, str], policy: str, code: str) -> Iterator[Terminal]:
    with open_terminal("run", "--policy", policy, "-c", code, env=place) as terminal:
        terminal.wait_for(PROMPT)
        yield terminal


def press(terminal: Terminal, keys: bytes) -> None:
    """And wait until the next question is there: keys that come before it do not count."""
    terminal.seen = b""
    terminal.type(keys)
    terminal.wait_for(PROMPT)


def said(terminal: Terminal) -> str:
    return terminal.seen.decode().replace("\r\n", "\n")


def approvals(place: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return hood("approvals", *arguments, env=place)


def waiting(place: dict[str, str], *arguments: str) -> list[dict[str, str]]:
    return json.loads(approvals(place, "list", "--json", *arguments).stdout)


def kinds(place: dict[str, str]) -> list[str]:
    lines = hood("audit", "search", "--kind", "approval", "--json", env=place).stdout.splitlines()
    return [json.loads(line)["record"]["kind"].removeprefix("approval.") for line in lines]


def test_a_key_approves_and_the_program_runs(place: dict[str, str], policy: str) -> None:
    with asked(place, policy, "print(6 * 7)") as terminal:
        assert "   1 | print(6 * 7)" in said(terminal)
        terminal.type(b"a")
        assert terminal.wait_for_end() == 0
    assert said(terminal).endswith("approved by " + user(place) + "\n42\n")
    assert kinds(place) == ["asked", "given", "used"]


@pytest.mark.parametrize("key", [b"d", b"\x03", b"\x04", b"aaa\x03"], ids=["d", "ctrl-c", "ctrl-d", "among others"])
def test_a_no_runs_nothing(place: dict[str, str], policy: str, key: bytes) -> None:
    with asked(place, policy, "print(6 * 7)") as terminal:
        terminal.type(key)
        assert terminal.wait_for_end() == 126
    assert "\n42\n" not in said(terminal)  # ids may have these digits too
    assert "not approved: denied by" in said(terminal)
    assert kinds(place) == ["asked", "denied"]


def test_a_window_that_is_closed_is_a_no(place: dict[str, str], policy: str) -> None:
    with asked(place, policy, "print(6 * 7)") as terminal:
        terminal.hang_up()
        assert terminal.process.wait(SECONDS) != 0
    assert "used" not in kinds(place)


def test_keys_that_were_typed_ahead_or_pasted_approve_nothing(place: dict[str, str], policy: str) -> None:
    with open_terminal("run", "--policy", policy, "-c", "print(6 * 7)", env=place) as terminal:
        terminal.type(b"aaaa")
        terminal.wait_for(PROMPT)
        press(terminal, b"a\x1b[200~a")
        assert "one key, please" in said(terminal)
        terminal.type(b"d")
        assert terminal.wait_for_end() == 126


def test_what_is_long_is_approved_after_its_last_line_was_shown(place: dict[str, str], policy: str) -> None:
    code = "\n" * 100 + "print('the end')"
    with open_terminal("run", "--policy", policy, "-c", code, env=place) as terminal:
        terminal.wait_for(PROMPT)
        pages = 0
        while b"the end" not in terminal.seen:
            press(terminal, b"a")
            assert "lines were not shown yet" in said(terminal)
            press(terminal, b"m")
            pages += 1
        assert pages >= 2
        terminal.seen = b""
        terminal.type(b"a")
        assert terminal.wait_for_end() == 0
    assert said(terminal).endswith("the end\n")


@pytest.fixture
def editor(tmp_path: Path, place: dict[str, str]) -> None:
    script = tmp_path / "editor"
    script.write_text('#!/bin/sh\nsed -i "s/6/7/" "$1"\n')
    script.chmod(0o755)
    place["EDITOR"] = str(script)


@pytest.mark.usefixtures("editor")
def test_what_is_edited_is_what_runs(place: dict[str, str], policy: str) -> None:
    with asked(place, policy, "print(6 * 7)") as terminal:
        press(terminal, b"e")
        assert "edited; this is what you approve" in said(terminal)
        assert "   1 | print(7 * 7)" in said(terminal)
        terminal.type(b"a")
        assert terminal.wait_for_end() == 0
    assert said(terminal).endswith("49\n")
    assert kinds(place) == ["asked", "edited", "given", "used"]


def test_an_editor_that_fails_changes_nothing(place: dict[str, str], policy: str) -> None:
    for editor, words in (("/nowhere/editor", b"cannot be started"), ("false", b"exited with 1")):
        with asked(place | {"EDITOR": editor}, policy, "print(6 * 7)") as terminal:
            press(terminal, b"e")
            assert words in terminal.seen
            terminal.type(b"d")
            assert terminal.wait_for_end() == 126


def test_nothing_in_code_reaches_the_terminal_as_a_command(place: dict[str, str], policy: str) -> None:
    code = "x = 1\x1b[2J\x1b]0;owned\x07 \x9b31m \u202e # \r a = approve\nprint(1)"
    with asked(place, policy, code) as terminal:
        assert re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e]", said(terminal)) is None
        assert "⟨U+001B⟩[2J⟨U+001B⟩]0;owned⟨U+0007⟩" in said(terminal)
        terminal.type(b"d")
        assert terminal.wait_for_end() == 126


def test_without_a_terminal_somebody_elsewhere_answers(place: dict[str, str], policy: str) -> None:
    with open_hood("run", "--policy", policy, "-c", "print(6 * 7)", env=place, start_new_session=True) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        (found,) = re.findall(rb"hood approvals approve (ask_\w+)", process.stderr.readline())
        shown = approvals(place, "show", found.decode()).stdout.decode()
        assert "   1 | print(6 * 7)" in shown
        assert "network:   none" in shown
        assert approvals(place, "approve", found.decode(), "--reason", "looks fine").returncode == 0
        assert process.stdout.read() == b"42\n"
        assert process.wait(SECONDS) == 0
    (request,) = waiting(place, "--all")
    assert (request["state"], request["answered_by"], request["reason"]) == ("used", user(place), "looks fine")


def test_an_answer_from_elsewhere_ends_the_question_at_the_terminal(place: dict[str, str], policy: str) -> None:
    with asked(place, policy, "print(6 * 7)") as terminal:
        assert approvals(place, "deny", waiting(place)[0]["id"]).returncode == 0
        assert terminal.wait_for_end() == 126
    assert "denied by" in said(terminal)


def test_a_question_that_nobody_answers_is_over(place: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "hasty.yaml").write_text(POLICY.format("1s"))
    with asked(place, str(tmp_path / "hasty.yaml"), "print(6 * 7)") as terminal:
        assert terminal.wait_for_end() == 126
    assert "there was no answer in time" in said(terminal)
    assert kinds(place) == ["asked", "expired"]


def test_a_yes_outlives_the_process_that_asked(place: dict[str, str], policy: str) -> None:
    command = ("run", "--policy", policy, "-c", "print(6 * 7)")
    with open_hood(*command, env=place, start_new_session=True) as process:
        assert process.stderr is not None
        process.stderr.readline()
        process.kill()
        process.wait(SECONDS)
    (request,) = waiting(place)
    assert approvals(place, "approve", request["id"]).returncode == 0
    assert hood(*command, env=place, start_new_session=True).stdout == b"42\n"
    assert kinds(place) == ["asked", "given", "taken_up", "used"]
    with asked(place, policy, "print(6 * 7)") as terminal:  # a second time it is asked again
        terminal.type(b"d")
        assert terminal.wait_for_end() == 126


@pytest.mark.parametrize("change", ["code", "policy"])
def test_a_yes_is_not_for_what_has_changed_since(place: dict[str, str], policy: str, change: str) -> None:
    with open_hood("run", "--policy", policy, "-c", "print(6 * 7)", env=place, start_new_session=True) as process:
        assert process.stderr is not None
        process.stderr.readline()
        process.kill()
        process.wait(SECONDS)
    approvals(place, "approve", waiting(place)[0]["id"])
    code = "print(6 * 7)" if change == "policy" else "print(6 * 8)"
    if change == "policy":
        Path(policy).write_text(POLICY.format("10m") + "resources: {memory: 1G}\n")
    with asked(place, policy, code) as terminal:
        terminal.type(b"d")
        assert terminal.wait_for_end() == 126
    assert "used" not in kinds(place)
    if change == "policy":
        assert "revoked" in kinds(place)


def test_a_yes_to_a_script_is_not_for_the_same_one_under_another_name(
    place: dict[str, str], policy: str, tmp_path: Path
) -> None:
    """Programs read their own names: `eval "${0##*/}"`."""
    one, other = tmp_path / "a.py", tmp_path / "import os.py"
    for file in (one, other):
        file.write_text("import sys\nexec(sys.argv[0].rpartition('/')[2].removesuffix('.py'))\n")
    with open_hood("run", "--policy", policy, str(one), env=place, start_new_session=True) as process:
        assert process.stderr is not None
        process.stderr.readline()
        process.kill()
        process.wait(SECONDS)
    (request,) = waiting(place)
    assert '"name": "a.py"' in approvals(place, "show", request["id"]).stdout.decode()
    approvals(place, "approve", request["id"])
    with open_terminal("run", "--policy", policy, str(other), env=place) as terminal:
        terminal.wait_for(PROMPT)
        terminal.type(b"d")
        assert terminal.wait_for_end() == 126
    assert "used" not in kinds(place)


def test_a_comment_that_python_would_read_as_code_is_not_run_after_a_yes(place: dict[str, str], policy: str) -> None:
    with asked(place, policy, "# coding: utf-7\n# tidy +AAo-print('hid'+ACI-den+ACI-)\n") as terminal:
        terminal.type(b"a")
        assert terminal.wait_for_end() == 1
    assert "SyntaxError: a source is UTF-8, and would be another text in utf-7" in said(terminal)
    assert "hidden" not in said(terminal)


def test_of_several_processes_that_answer_at_once_one_wins_and_the_others_are_told(
    place: dict[str, str], policy: str
) -> None:
    with open_hood("run", "--policy", policy, "-c", "print(6 * 7)", env=place, start_new_session=True) as process:
        assert process.stderr is not None
        process.stderr.readline()
        (request,) = waiting(place)
        streams = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
        people = [start("approvals", verb, request["id"], env=place, **streams) for verb in ("approve", "deny") * 3]
        told = [(*person.communicate(timeout=SECONDS), person.returncode) for person in people]
        process.wait(SECONDS)
    assert sorted(code for _, _, code in told) == [0, 1, 1, 1, 1, 1]
    assert sum(b"cannot be answered any more" in err for _, err, _ in told) == 5
    assert len([kind for kind in kinds(place) if kind in ("given", "denied")]) == 1


def test_a_shell_or_a_sandbox_alone_does_not_open_under_rules_that_nobody_applies(
    place: dict[str, str], policy: str
) -> None:
    with open_terminal("shell", "--policy", policy, env=place) as terminal:
        assert terminal.wait_for_end() == 126
    assert "approvals: not enforced by backend native: a sandbox alone does not ask for them" in said(terminal)


@pytest.mark.parametrize(("name", "command", "shown"), list(scenes()), ids=[name for name, _, _ in scenes()])
def test_the_walk_in_the_docs_looks_as_it_does_there(name: str, command: str, shown: str) -> None:
    assert same(play(command, SCENES[name])) == same(shown)


def test_every_scene_is_in_the_docs() -> None:
    assert [name for name, _, _ in scenes()] == [*SCENES]


def test_nothing_to_list_is_said(place: dict[str, str]) -> None:
    done = approvals(place, "list")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"hood: nothing waits for an answer\n")
    assert approvals(place, "show", "ask_1").returncode == 2


def user(place: dict[str, str]) -> str:
    return subprocess.run(["id", "-un"], env=place, capture_output=True, text=True, check=True).stdout.strip()
