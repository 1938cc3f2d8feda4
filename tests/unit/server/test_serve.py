"""`hood serve` and the commands of its host, as processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import httpx
import pytest
from live.loaded_hood import run_hood, start_hood

from fumehood.cli.server import quotas, serve
from fumehood.errors import UsageError
from fumehood.server.settings import load_settings
from fumehood.server.storage.choice import open_database
from fumehood.server.tenants.quotas import Quota


def hood(state: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "FUMEHOOD_SERVER_STATE": str(state), **variables}
    return run_hood(*words, env=environment)


@contextmanager
def served(state: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    environment = {**os.environ, "FUMEHOOD_SERVER_STATE": str(state)}
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with start_hood("serve", "--listen", "127.0.0.1:0", *words, env=environment, **streams) as server:
        assert server.stdout is not None
        try:
            yield server, server.stdout
        finally:
            server.kill()


def until(output: IO[str], text: str) -> list[str]:
    lines: list[str] = []
    for line in output:
        lines.append(line.rstrip("\n"))
        if text in line:
            return lines
    raise AssertionError("\n".join(lines))


def test_a_server_is_begun_managed_and_ended(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with served(state, "--init", "acme") as (server, output):
        lines = until(output, "listening at")
        given = dict(line.removeprefix("export ").split("=", 1) for line in lines if line.startswith("export "))
        assert given["FUMEHOOD_KEY"].startswith("fh_")
        assert oct((state / "operator.json").stat().st_mode & 0o777) == "0o600"
        # The server has the database for itself, so these go through it.
        assert hood(state, "tenant", "create", "beta").returncode == 0
        made = hood(state, "key", "create", "beta", "--scope", "run")
        assert (made.returncode, made.stdout.startswith("fh_")) == (0, True)
        assert "set by key:" in hood(state, "quota", "set", "beta", "sandboxes", "3").stdout
        wrong = hood(state, "quota", "set", "beta", "sandboxs", "3")
        assert (wrong.returncode, "sandboxes" in wrong.stderr) == (2, True)
        sizes = hood(state, "quota", "set", "beta", "memory", "1.5G").stdout.split()
        assert (sizes[:2], "64G" in hood(state, "quota", "show", "beta").stdout) == (["memory", "1536M"], True)
        for quota, value in (("memory", "much"), ("runs", "few")):
            assert f"hood: {quota}: " in hood(state, "quota", "set", "beta", quota, value).stderr
        place = lines[-1].rpartition("/")[2]
        taken = hood(tmp_path / "other", "serve", "--listen", place)
        assert taken.stderr == f"hood: cannot listen at {place}: Address already in use; see --listen\n"
        second = hood(state, "serve", "--listen", "127.0.0.1:0")
        assert (second.returncode > 0, "another server uses" in second.stderr) == (True, True)
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
    assert not (state / "operator.json").exists()
    listed = hood(state, "tenant", "list")
    assert [line.split()[-1] for line in listed.stdout.splitlines()] == ["acme", "beta"]
    assert "there is no tenant 'nobody'" in hood(state, "key", "list", "nobody").stderr


def test_one_who_ends_a_server_is_told_what_it_waits_for(tmp_path: Path) -> None:
    (tmp_path / "server.yaml").write_text("strict: false\n")
    with served(tmp_path / "state", "--init", "acme", "--config", str(tmp_path / "server.yaml")) as (server, output):
        lines = until(output, "listening at")
        given = dict(line.removeprefix("export ").split("=", 1) for line in lines if line.startswith("export "))
        headers = {"Authorization": f"Bearer {given['FUMEHOOD_KEY']}"}
        opened = httpx.post(f"{given['FUMEHOOD_SERVER']}/v1/sandboxes", json={}, headers=headers, timeout=60)
        assert opened.status_code == 201
        server.send_signal(signal.SIGINT)
        until(output, "those that are open may take 10m to end, or end with a second signal")
        server.send_signal(signal.SIGINT)
        assert server.wait(60) == 0


def test_the_help_names_every_quota() -> None:
    assert [*quotas.QUOTAS] == [quota.value for quota in Quota]


def test_a_service_manager_is_told_when_it_listens_and_when_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "200000")
        with served(tmp_path / "state") as (server, _):
            states: list[bytes] = []
            while not states or not states[-1].startswith(b"READY=1"):
                states.append(manager.recv(1000))
            assert states[-1].startswith(b"READY=1\nSTATUS=listening at http://127.0.0.1:")
            assert states[0] == manager.recv(1000) == b"WATCHDOG=1"
            server.send_signal(signal.SIGTERM)
            while not (last := manager.recv(1000)).startswith(b"STOPPING=1"):
                assert last == b"WATCHDOG=1"
            assert server.wait(60) == 0


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"listen": "0.0.0.0:8440"}, "--tls-cert and --tls-key, or --behind-proxy"),
        ({"listen": "hood.example:8440"}, "--tls-cert"),
        ({"listen": "0.0.0.0:8440", "behind_proxy": ["10.0.0.0/8"]}, "--host"),
        ({"listen": "8440x"}, "must be HOST:PORT"),
        ({"behind_proxy": ["ten"]}, "must be a network"),
        ({"drain": "soon"}, "drain"),
        ({"port": 1}, "port: Extra inputs"),
    ],
)
def test_settings_that_would_open_too_much_or_make_no_sense_are_refused(given: dict[str, object], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        load_settings(None, **given)


def test_a_file_has_the_settings_and_options_take_their_place(tmp_path: Path) -> None:
    file = tmp_path / "server.yaml"
    file.write_text("listen: '[::1]:9'\nlimits: {body: 1M}\nsandboxes: {idle: 1m}\n")
    settings = load_settings(str(file), listen="127.0.0.1:10", database=None)
    assert (settings.address, settings.limits.body, settings.sandboxes.idle) == (("127.0.0.1", 10), 1024**2, 60)
    assert "localhost" in settings.names


def test_without_a_web_framework_it_says_how_to_install_one(monkeypatch: pytest.MonkeyPatch) -> None:
    extras = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    assert {"server", "postgres", "remote"} <= set(extras)
    monkeypatch.setattr("fumehood.cli.server.calls.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'fumehood\[server\]'"):
        serve.execute([])
    monkeypatch.setattr("fumehood.server.storage.choice.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'fumehood\[postgres\]'"):
        open_database("postgresql://somewhere/hood")
