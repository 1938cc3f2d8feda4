"""`hood policy explain`: an attempt in, the rule that decides out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fumehood.cli.entry import run_command

TEXT = """\
version: 1
filesystem: {mounts: [{source: /srv/data, target: /data}]}
network:
  allow:
    - {host: api.example.com, ports: [443], methods: [GET]}
commands: {allow: [ls, git], deny: [git push]}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.yaml").write_text(TEXT)


@pytest.mark.parametrize(
    ("attempt", "code", "said"),
    [
        (
            ["connect api.example.com:443"],
            0,
            (
                "allowed: connect api.example.com:443\n"
                "  why     the rule opens api.example.com:443 (GET), at public addresses\n"
                "  rule    network.allow[0] (p.yaml:5)\n"
            ),
        ),
        (
            ["http", "POST", "https://api.example.com/x"],
            1,
            (
                "denied: http POST https://api.example.com/x\n"
                "  why     the rule allows only GET here\n"
                "  rule    network.allow[0] (p.yaml:5)\n"
                "  change  add POST to methods of network.allow[0]\n"
            ),
        ),
        (
            ["write /data/x"],
            1,
            (
                "denied: write /data/x\n"
                "  why     /srv/data is mounted read-only at /data\n"
                "  rule    filesystem.mounts[/data] (p.yaml:2)\n"
                "  change  set mode: rw in filesystem.mounts[/data]\n"
            ),
        ),
        (
            ["read /etc/shadow"],
            1,
            (
                "denied: read /etc/shadow\n"
                "  why     /etc is the sandbox's own and does not have it, whatever a policy says\n"
                "  rule    none; every sandbox is like that\n"
                "  change  none would allow it\n"
            ),
        ),
        (
            ["command", "git", "push", "a b"],
            1,
            (
                "denied: command git push 'a b'\n"
                "  why     this is denied\n"
                "  rule    commands.deny[git push] (p.yaml:6)\n"
                "  change  remove 'git push' from commands.deny\n"
            ),
        ),
        (
            ["resource memory=1G"],
            1,
            (
                "denied: resource memory=1G\n"
                "  why     the limit is 512M\n"
                "  rule    resources.memory (not in p.yaml)\n"
                "  change  set resources.memory: 1G\n"
            ),
        ),
    ],
)
def test_an_attempt_is_explained_in_words(
    attempt: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["policy", "explain", "p.yaml", *attempt]) == code
    assert capsys.readouterr().out == said


def test_an_attempt_is_explained_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["policy", "explain", "p.yaml", "connect evil.example:443", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {
        "attempt": "connect evil.example:443",
        "verdict": "deny",
        "why": "no rule opens this name",
        "rule": "network.allow",
        "rule_line": 4,
        "remedy": "add {host: evil.example, ports: [443]} to network.allow",
    }


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["p.yaml", "fly away"], "'fly away' is not an attempt; write one such as"),
        (["p.yaml", "connect example.com"], "must be host:port, such as api.github.com:443"),
        (["none.yaml", "read /x"], "none.yaml: cannot be read: there is no such file"),
        (["p.yaml"], "which attempt?"),
        (["p.yaml", "read /\x1b[2J"], "must not contain control or invisible characters"),
    ],
)
def test_what_makes_no_sense_is_one_clear_line(
    arguments: list[str], reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["policy", "explain", *arguments]) == 2
    said = capfd.readouterr().err
    assert reason in said
    assert said.count("\n") == 1
    assert "\x1b" not in said


def test_a_key_is_explained_with_what_it_takes(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["policy", "explain", "resources.processes"]) == 0
    assert capsys.readouterr().out == (
        "resources.processes\n"
        "  takes   whole number\n"
        "  default 64\n"
        "  does    How many processes and threads a run may have at a time.\n"
    )


def test_a_section_is_explained_with_its_keys(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["policy", "explain", "audit"]) == 0
    shown = capsys.readouterr().out
    assert "  takes   mapping, with the keys below\n" in shown
    assert "\naudit.durability (written, synced; default written)\n  written survives" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_a_key_is_explained_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["policy", "explain", "filesystem.workspace", "--json"]) == 0
    workspace, size = json.loads(capsys.readouterr().out)
    assert (workspace["key"], size["key"]) == ("filesystem.workspace", "filesystem.workspace.size")
    assert (size["takes"], size["default"]) == ("size", None)


def test_a_wrong_key_gets_the_nearest(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_command(["policy", "explain", "resources.memry"]) == 2
    assert "did you mean resources.memory?" in capfd.readouterr().err


def test_a_file_without_an_attempt_gets_an_example_of_one(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_command(["policy", "explain", "p.yaml"]) == 2
    assert "which attempt? Such as: hood policy explain p.yaml 'connect" in capfd.readouterr().err
