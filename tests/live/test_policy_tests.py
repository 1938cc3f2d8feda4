"""`hood policy test --live` as people use it: a process of its own, real sandboxes, and nothing left of them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from live.cli_host import hood, open_terminal

EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "examples" / "policies").glob("*.yaml"))
ENVIRONMENT = {**os.environ, "INDEX_TOKEN": "not a real one"}
CLOSED = """\
version: 1
resources: {memory: 64M}
tests:
  - {read: /etc/shadow, expect: deny}
  - {resource: memory=64M, expect: allow}
  - {resource: timeout=1h, expect: deny}
"""


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_as_its_tests_say_in_a_real_sandbox(path: Path) -> None:
    done = hood("policy", "test", "--live", "--backend", "native", "--json", path, env=ENVIRONMENT)
    data = json.loads(done.stdout)
    assert (done.returncode, data["failed"], data["policies"][0]["problems"]) == (0, 0, []), data
    tried = [test for test in data["policies"][0]["tests"] if test["live"]["verdict"] is not None]
    assert len(tried) >= 10
    assert all(test["live"]["verdict"] == test["expect"] for test in tried)


def test_a_file_that_is_not_there_shows_only_in_a_real_sandbox(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    policy = tmp_path / "p.yaml"
    policy.write_text(
        "version: 1\n"
        "filesystem: {mounts: [{source: data, target: /data}]}\n"
        "tests:\n"
        "  - {read: /data/forgotten.csv, expect: allow}\n"
    )
    assert hood("policy", "test", policy).returncode == 0
    done = hood("policy", "test", "--live", "p.yaml", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stdout.decode().splitlines() == [
        "fail  p.yaml:4: allow read /data/forgotten.csv",
        "      in a real sandbox: expected allow, got deny: No such file or directory",
        "FAIL  p.yaml: 1 of 1 test failed",
        "1 policy, 1 test: 0 passed, 1 failed, 1 of them tried live",
    ]


def test_a_policy_that_does_not_open_does_not_stop_the_others(tmp_path: Path) -> None:
    (tmp_path / "closed.yaml").write_text(CLOSED)
    (tmp_path / "lost.yaml").write_text(
        "filesystem: {mounts: [{source: /nowhere, target: /data}]}\ntests: [{read: /data, expect: allow}]\n"
    )
    done = hood("policy", "test", "--live", cwd=tmp_path)
    lines = done.stdout.decode().splitlines()
    assert done.returncode == 2
    assert lines[0] == "ok    closed.yaml: 3 tests"
    assert lines[1].startswith("error lost.yaml: cannot be tried in a sandbox: mount source")
    assert lines[-1] == "2 policies, 4 tests: 4 passed, 2 of them tried live, 1 policy has problems"


def test_what_is_not_tried_says_why(tmp_path: Path) -> None:
    (tmp_path / "closed.yaml").write_text(CLOSED)
    done = hood("policy", "test", "--live", "-v", "--junit", "r.xml", cwd=tmp_path)
    assert done.returncode == 0
    assert b"\n      not tried live: it would take as long as it says" in done.stdout
    assert b"<system-out>not tried live: it would" in (tmp_path / "r.xml").read_bytes()


def test_a_policy_that_leaves_no_room_to_try_is_a_clear_problem(tmp_path: Path) -> None:
    paths = "".join(f"  - {{read: /home/{number}, expect: deny}}\n" for number in range(50))
    (tmp_path / "p.yaml").write_text(f"resources: {{output: 16B}}\ntests:\n{paths}")
    done = hood("policy", "test", "--live", "p.yaml", cwd=tmp_path)
    said = " ".join(done.stdout.decode().split())
    assert done.returncode == 2
    assert "the program that tries files and connections did not come to its end: it wrote more than 16B" in said


def test_many_tests_are_tried_in_few_runs(tmp_path: Path) -> None:
    paths = "".join(f"  - {{write: deep/{number}/x, expect: allow}}\n" for number in range(1000))
    (tmp_path / "p.yaml").write_text(f"version: 1\ntests:\n{paths}")
    done = hood("policy", "test", "--live", "p.yaml", cwd=tmp_path)
    assert done.stdout == b"ok    p.yaml: 1000 tests\n1 policy, 1000 tests: 1000 passed, 1000 of them tried live\n"


def test_colours_are_for_terminals(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("version: 1\ntests: [{read: /etc/shadow, expect: allow}]\n")
    environment = {**os.environ, "TERM": "xterm"}
    environment.pop("NO_COLOR", None)
    with open_terminal("policy", "test", str(tmp_path / "p.yaml"), env=environment) as terminal:
        assert terminal.wait_for_end() == 1
    assert b"\x1b[31mFAIL\x1b[0m" in terminal.seen
    assert b"\x1b" not in hood("policy", "test", tmp_path / "p.yaml").stdout
