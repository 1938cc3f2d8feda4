"""`hood doctor` and `hood gc` on this very machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import engine
import pytest
from live.cli_host import HOOD, UP_AND_WAITING, hood, open_hood, open_terminal, wait_for_line
from live.traces import cgroups_of
from requirements import require

from fumehood.backends.native.host_facts import detect
from fumehood.guest.probe import PROBES

CONDITIONS = {"works", "weaker", "missing", "unused"}


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever this machine has."""
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/engine.sock")


@pytest.mark.usefixtures("no_engine")
def test_the_doctor_finds_that_sandboxes_work_here() -> None:
    done = hood("doctor")
    assert (done.returncode, done.stderr) == (0, b"")
    lines = done.stdout.decode().splitlines()
    assert lines[-1].startswith("Sandboxes work here")
    assert not any("\x1b" in line for line in lines)
    assert all(len(line) <= 80 for line in lines if "sudo" not in line)
    assert [line.split()[0] for line in lines if line.startswith(("  native", "  docker"))] == ["native", "docker"]


@pytest.mark.usefixtures("no_engine")
def test_the_doctor_speaks_json(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FUMEHOOD_MACHINES", str(tmp_path))  # without an image for machines
    done = hood("doctor", "--json")
    found = json.loads(done.stdout)
    assert found["works"] is True
    assert {check["name"] for check in found["checks"]} >= {*PROBES, "memory cgroup", "pids cgroup", "cpu cgroup"}
    assert {check["condition"] for check in found["checks"]} <= CONDITIONS - {"missing"}
    assert found["trial"]["cold_ms"] > found["trial"]["warm_ms"] > 0
    assert found["trial"]["enforcement"]["network"]
    assert [backend["name"] for backend in found["backends"] if backend["works"]] == ["native"]


def test_the_doctor_tries_an_engine_that_is_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FUMEHOOD_MACHINES", str(tmp_path))
    require(engine.missing() is None, engine.missing() or "")
    monkeypatch.setenv("DOCKER_HOST", engine.use())
    found = json.loads(hood("doctor", "--json").stdout)
    working = {backend["name"]: backend["detail"] for backend in found["backends"] if backend["works"]}
    assert list(working) == ["native", "docker", "gvisor"]
    assert f"image {engine.IMAGE}" in working["docker"]
    assert "runtime runsc" in working["gvisor"]
    lines = hood("doctor").stdout.decode().splitlines()
    assert all(len(line) <= 80 or " " not in line.strip() for line in lines if "sudo" not in line)


def test_the_doctor_explains_a_machine_without_user_namespaces() -> None:
    """A user namespace of its own has the switch too, so the machine around it does not notice."""
    switch_off = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    command = ["unshare", "--user", "--map-root-user", "sh", "-c", switch_off, "sh", *HOOD, "doctor", "--json"]
    done = subprocess.run(command, capture_output=True, timeout=60)
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    checks = {check["name"]: check for check in found["checks"]}
    assert checks["user namespaces"]["condition"] == "missing"
    assert checks["user namespaces"]["fixes"] == ["sudo sysctl -w user.max_user_namespaces=15000"]
    assert checks["mount namespace"]["detail"] == "needs user namespaces"
    assert (found["works"], found["trial"]["works"]) == (False, False)


def test_gc_removes_what_a_killed_process_left() -> None:
    require(detect().hierarchies, "no cgroups can be made here")
    with open_hood("run", "-c", UP_AND_WAITING) as process:
        wait_for_line(process.stdout, b"up\n")
        process.send_signal(signal.SIGKILL)
        process.wait(60)
    left = cgroups_of(process.pid)
    assert left
    done = hood("gc")
    assert done.returncode == 0
    # The other tests' runs may have been quicker: every process sweeps when it starts.
    assert cgroups_of(process.pid) == []
    assert done.stdout.decode().splitlines()[-1].startswith(("removed", "nothing"))


def test_gc_leaves_the_living_alone() -> None:
    with open_hood("run", "-c", UP_AND_WAITING) as process:
        wait_for_line(process.stdout, b"up\n")
        before = cgroups_of(process.pid)
        assert hood("gc").returncode == 0
        assert cgroups_of(process.pid) == before


@pytest.mark.parametrize(
    ("options", "is_coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)], ids=str
)
def test_a_terminal_gets_colours_unless_told_otherwise(options: dict[str, str], is_coloured: bool) -> None:
    environment = {**os.environ, "TERM": "xterm", "NO_COLOR": "", **options}
    with open_terminal("policy", "check", "/dev/null", env=environment) as terminal:
        assert terminal.wait_for_end() == 1
        assert (b"\x1b" in terminal.seen) is is_coloured
