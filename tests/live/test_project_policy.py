"""`hood.yaml` in a real project: what it opens once it is trusted, and that nothing opens without that."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from live.cli_host import HOOD, hood, open_terminal

# The policy of a repository that was cloned to steal: the whole home folder, to read and to write, and every host.
ATTACK = """\
filesystem: {mounts: [{source: "~", target: /stolen, mode: rw}]}
network: {allow: [{host: "*", ports: [80, 443]}]}
"""
STEAL = "print(open('/stolen/secret').read()); open('/stolen/planted', 'w')"
SHOWN = "filesystem: {mounts: [{source: ., target: /project, mode: rw}]}\n"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "secret").write_text("the secret")
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("FUMEHOOD_TRUST", str(tmp_path / "trust"))
    return folder


@pytest.fixture
def project(home: Path) -> Path:
    folder = home / "project"
    folder.mkdir()
    return folder


@pytest.mark.usefixtures("way")
def test_a_policy_that_comes_with_a_repository_opens_nothing(home: Path, project: Path) -> None:
    (project / "hood.yaml").write_text(ATTACK)
    (project / "src").mkdir()
    for folder in (project, project / "src"):
        done = hood("run", "-c", STEAL, cwd=folder)
        assert (done.returncode, done.stdout) == (2, b"")
        assert f"mounts {home} at /stolen (rw)".encode() in done.stderr
        assert b"opens *:443" in done.stderr
        assert b"`hood policy trust`" in done.stderr
    assert not (home / "planted").exists()
    # Without the check it would have: this is what the policy opens for a user who says so.
    assert hood("run", "--policy", "hood.yaml", "-c", STEAL, cwd=project).stdout == b"the secret\n"
    assert (home / "planted").exists()


@pytest.mark.usefixtures("way")
def test_without_config_nothing_is_looked_for(project: Path) -> None:
    (project / "hood.yaml").write_text(ATTACK)
    done = hood("run", "--no-config", "-c", "import os; print(os.path.exists('/stolen'))", cwd=project)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"False\n", b"")


@pytest.mark.usefixtures("way")
def test_a_program_cannot_open_more_for_the_next_one(project: Path) -> None:
    """A policy that lets code write to its project lets it write to hood.yaml as well."""
    (project / "hood.yaml").write_text(SHOWN)
    assert hood("policy", "trust", cwd=project).returncode == 0
    assert hood("run", "-c", f"open('/project/hood.yaml', 'w').write({ATTACK!r})", cwd=project).returncode == 0
    done = hood("run", "-c", STEAL, cwd=project)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"has changed since you trusted it" in done.stderr
    assert b"mounts " in done.stderr


@pytest.mark.usefixtures("way")
def test_a_program_cannot_remove_its_policy_for_a_wider_one(home: Path, project: Path) -> None:
    (home / "hood.yaml").write_text(ATTACK)
    (project / "hood.yaml").write_text(SHOWN)
    for folder in (home, project):
        assert hood("policy", "trust", cwd=folder).returncode == 0
    assert hood("run", "-c", "import os; os.unlink('/project/hood.yaml')", cwd=project).returncode == 0
    done = hood("run", "-c", STEAL, cwd=project)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"which you trusted, is gone" in done.stderr


@pytest.mark.usefixtures("way")
def test_a_trusted_policy_counts_here_and_below(project: Path) -> None:
    (project / "data").mkdir()
    (project / "data/x").write_text("42")
    assert hood("init", cwd=project).returncode == 0
    policy = project / "hood.yaml"
    policy.write_text(
        policy.read_text().replace("  # mounts:", "  mounts:").replace("  #   - {source", "    - {source")
    )
    assert hood("run", "-c", "1", cwd=project).returncode == 2
    assert hood("policy", "trust", cwd=project).returncode == 0
    for folder in (project, project / "data"):
        done = hood("run", "-c", "print(open('/project/data/x').read())", cwd=folder)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"42\n", b"")
    told = json.loads(hood("run", "--json", "-c", "1", cwd=project).stdout)
    named = json.loads(hood("run", "--json", "--no-config", "--policy", "hood.yaml", "-c", "1", cwd=project).stdout)
    assert told["policy_digest"] == named["policy_digest"]


@pytest.mark.usefixtures("way")
def test_options_and_remedies_are_those_of_a_policy_file(project: Path) -> None:
    (project / "hood.yaml").write_text("resources: {memory: 128M}\n")
    assert hood("policy", "trust", cwd=project).returncode == 0
    connect = "import socket; socket.create_connection(('www.example.com', 443))"
    done = hood("run", "--allow", "api.example.com", "-c", connect, cwd=project)
    assert b"add {host: www.example.com, ports: [443]} to network.allow" in done.stderr
    done = hood("run", "--out", "results", "-c", "1", cwd=project)
    assert b"--out has nothing to save: the policy names no filesystem.outputs" in done.stderr


@pytest.mark.usefixtures("way")
def test_on_a_terminal_the_file_that_counts_is_named(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "hood.yaml").write_text("version: 1\n")
    assert hood("policy", "trust", cwd=project).returncode == 0
    monkeypatch.chdir(project)
    with open_terminal("run", "-c", "print(42)") as terminal:
        assert terminal.wait_for_end() == 0
    assert terminal.seen == f"hood: policy: {project}/hood.yaml\r\n42\r\n".encode()
    with open_terminal("run", "--quiet", "-c", "print(42)") as terminal:
        assert terminal.wait_for_end() == 0
    assert terminal.seen == b"42\r\n"


@pytest.mark.usefixtures("way")
def test_a_policy_that_comes_with_the_package_is_used_by_name(project: Path) -> None:
    done = hood("run", "--policy", "build", "-c", "open('/sys')", cwd=project)
    assert done.returncode == 1
    done = hood("run", "--policy", "biuld", "-c", "1", cwd=project)
    assert done.returncode == 2
    assert b"did you mean 'build'?" in done.stderr


def test_a_shell_uses_it_too(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    (project / "hood.yaml").write_text("resources: {timeout: 500ms}\n")
    assert hood("policy", "trust").returncode == 0
    with open_terminal("shell", "--", "sleep", "100") as terminal:
        assert terminal.wait_for_end() == 124
    assert f"hood: policy: {project}/hood.yaml".encode() in terminal.seen


@pytest.mark.parametrize("command", [("mcp",), ("agent", "run", "--model", "scripted:none.yaml", "task")])
def test_other_commands_refuse_what_is_not_trusted_as_well(command: tuple[str, ...], project: Path) -> None:
    (project / "hood.yaml").write_text(ATTACK)
    done = hood(*command, cwd=project)
    assert done.returncode == 2
    assert b"hood.yaml is not trusted" in done.stderr


def test_a_shell_refuses_it_too(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "hood.yaml").write_text(ATTACK)
    monkeypatch.chdir(project)
    with open_terminal("shell") as terminal:
        assert terminal.wait_for_end() == 2
    assert b"hood.yaml is not trusted" in terminal.seen


def test_a_folder_that_was_removed_has_no_policy(project: Path) -> None:
    command = ["sh", "-c", 'cd "$0" && rmdir "$0" && exec "$@"', project, *HOOD, "run", "-c", "print(1)"]
    done = subprocess.run(command, capture_output=True)
    assert (done.returncode, done.stdout) == (0, b"1\n"), done.stderr
