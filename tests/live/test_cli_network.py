"""`hood run` with network rules: what was refused is told line by line, and `--learn` writes the rules."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from live.cli_host import hood

from fumehood import Policy

pytestmark = pytest.mark.usefixtures("way")

GET = """
import sys, urllib.error, urllib.request
for url in sys.argv[1:]:
    try:
        print(urllib.request.urlopen(url).status)
    except OSError as error:
        print(error)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "get.py").write_text(GET)
    return tmp_path / "get.py"


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    (tmp_path / "policy.yaml").write_text("network: {allow: [{host: allowed.example, ports: [443], methods: [GET]}]}\n")
    return tmp_path / "policy.yaml"


def test_each_refusal_is_a_line_with_what_would_help(script: Path, policy: Path) -> None:
    done = hood("run", "--policy", policy, script, "--", "http://a.example/", "https://b.example/", "http://a.example/")
    assert done.returncode == 0
    assert done.stderr.decode().splitlines() == [
        (
            "hood: denied: connect a.example:80: no rule opens this name (2 times); "
            "add {host: a.example, ports: [80]} to network.allow"
        ),
        (
            "hood: denied: connect b.example:443: no rule opens this name; "
            "add {host: b.example, ports: [443]} to network.allow"
        ),
    ]


def test_quiet_says_nothing_of_it(script: Path, policy: Path) -> None:
    assert hood("run", "--quiet", "--policy", policy, script, "--", "http://a.example/").stderr == b""


def test_json_has_them_as_data(script: Path, policy: Path) -> None:
    told = json.loads(hood("run", "--json", "--policy", policy, script, "--", "http://a.example/").stdout)
    (denial,) = told["denials"]
    assert (denial["kind"], denial["host"], denial["port"], denial["count"]) == ("connect", "a.example", 80, 1)
    assert denial["remedy"] == "add {host: a.example, ports: [80]} to network.allow"


def test_a_name_cannot_write_to_the_terminal(policy: Path) -> None:
    code = (
        "import socket; line = socket.create_connection(('127.0.0.1', 3128)); "
        "line.sendall(b'\\5\\1\\0'); line.recv(2); line.sendall(b'\\5\\1\\0\\3\\x08\\x1b[2J.com\\0\\x50'); line.recv(9)"
    )
    done = hood("run", "--policy", policy, "-c", code)
    assert b"denied: connect \\x1b[2J.com:80: " in done.stderr
    assert b"\x1b" not in done.stderr


@pytest.mark.plain_only("--learn is done by the process itself")
def test_learning_prints_a_policy_for_what_was_tried(script: Path, tmp_path: Path) -> None:
    urls = ("http://a.example/one", "https://b.example/two?x=y", "https://b.example:9443/three")
    done = hood("run", "--learn", "--memory", "256M", script, "--", *urls)
    assert done.stderr == b"200\n200\n200\n"
    (tmp_path / "learned.yaml").write_bytes(done.stdout)
    learned = Policy.load(tmp_path / "learned.yaml")
    assert learned.resources.memory == 256 * 1024 * 1024
    assert [rule.model_dump(mode="json", exclude_defaults=True) for rule in learned.network.allow] == [
        {"host": "a.example", "ports": [80], "methods": ["GET"], "paths": ["/one"]},
        {"host": "b.example", "ports": [443], "methods": ["GET"], "paths": ["/two"]},
        {"host": "b.example", "ports": [9443], "protocol": "tls", "methods": ["GET"], "paths": ["/three"]},
    ]


@pytest.mark.plain_only("--learn is done by the process itself")
def test_a_program_that_tries_nothing_needs_nothing(tmp_path: Path) -> None:
    done = hood("run", "--learn", "-c", "print('hello')")
    assert (done.returncode, done.stderr) == (0, b"hello\n")
    (tmp_path / "learned.yaml").write_bytes(done.stdout)
    assert Policy.load(tmp_path / "learned.yaml") == Policy()


def test_learning_and_json_exclude_each_other() -> None:
    done = hood("run", "--learn", "--json", "-c", "1")
    assert done.returncode == 2
    assert b"--learn prints a policy and --json a result" in done.stderr
