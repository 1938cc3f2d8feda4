"""`hood policy`: files in, words and an exit code out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fumehood.cli.entry import run_command
from fumehood.policy import Policy

SAFE = "resources: {memory: 64M}\n"
DOUBTFUL = "filesystem: {mounts: [{source: /srv/data, target: /data, mode: rw}]}\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "safe.yaml": SAFE,
        "doubtful.yaml": DOUBTFUL,
        "broken.yaml": "resources: {memroy: 1G}\nnetwrok: {}\n",
        "list.yaml": "- a\n- b\n",
        "tab.yaml": "resources:\n\tmemory: 1G\n",
    }.items():
        (tmp_path / name).write_text(text)


def test_a_good_policy_is_ok(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["policy", "check", "safe.yaml"]) == 0
    assert capsys.readouterr().out == "safe.yaml: ok\n"


def test_a_doubtful_choice_is_named_and_fails_only_when_strict(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["policy", "check", "doubtful.yaml"]) == 0
    assert capsys.readouterr().out.startswith("warning: doubtful.yaml: filesystem.mounts[/data]: /data can be written")
    assert run_command(["policy", "check", "--strict", "safe.yaml", "doubtful.yaml"]) == 1


def test_every_mistake_in_every_file_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    files = ["broken.yaml", "safe.yaml", "list.yaml", "tab.yaml", "none.yaml"]
    assert run_command(["policy", "check", *files]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[1] for line in lines] == [
        "broken.yaml:1",
        "broken.yaml:2",
        "ok",
        "list.yaml:1",
        "tab.yaml:2",
        "none.yaml",
    ]


def test_a_policy_is_shown_in_words_with_its_digest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["policy", "show", "safe.yaml"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "memory: 64M" in lines
    assert lines[-1] == f"digest: {Policy.load('safe.yaml').digest}"


def test_a_policy_as_json_can_be_loaded_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["policy", "show", "--json", "doubtful.yaml"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert Policy(**shown["policy"]).digest == shown["digest"] == Policy.load("doubtful.yaml").digest


def test_two_policies_are_compared_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["policy", "diff", "safe.yaml", "safe.yaml"]) == 0
    assert capsys.readouterr().out == ""
    assert run_command(["policy", "diff", "safe.yaml", "doubtful.yaml"]) == 1
    assert capsys.readouterr().out.splitlines() == ["mounts /srv/data at /data (rw)", "raises memory 64M -> 512M"]


def test_a_policy_that_cannot_be_read_is_trouble(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_command(["policy", "diff", "safe.yaml", "none.yaml"]) == 2
    assert capfd.readouterr().err == "hood: none.yaml: cannot be read: there is no such file\n"
