"""`hood init`: a policy that people can read, and that opens nothing."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from fumehood.cli import project_policy
from fumehood.cli.entry import run_command
from fumehood.policy import Policy
from fumehood.policy.named import NAMES

# A line that is an example: a key, or an entry of a list.
EXAMPLE = re.compile(r"^( *)# ( *(?:[a-z_]+:(?: \[.*\])?|- \{.*\}))$", re.MULTILINE)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FUMEHOOD_TRUST", str(tmp_path / "trust"))
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


def test_it_writes_a_policy_that_opens_nothing_and_counts(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run_command(["init"]) == 0
    assert "hood.yaml is written and trusted" in capfd.readouterr().out
    policy = project_policy.load(str(project / "hood.yaml"))
    assert Policy().diff(policy) == ["adds output out/**"]
    assert run_command(["policy", "check", "--strict", "hood.yaml"]) == 0
    assert run_command(["policy", "test", "hood.yaml"]) == 0
    assert os.listdir(project) == ["hood.yaml"]
    assert all(len(line) <= 80 for line in (project / "hood.yaml").read_text().splitlines())


def test_its_examples_are_valid_once_the_mark_before_them_is_removed(project: Path) -> None:
    assert run_command(["init"]) == 0
    text, count = EXAMPLE.subn(r"\1\2", (project / "hood.yaml").read_text())
    assert count == 7
    policy = Policy.loads(text, base=project)
    assert Policy().diff(policy) == [
        f"mounts {project} at /project (ro)",
        "adds output out/**",
        "opens api.example.com:443 (GET)",
        "adds package pandas",
    ]
    (project / "hood.yaml").write_text(text)
    assert run_command(["policy", "test", "hood.yaml"]) == 0


def test_a_file_that_exists_is_replaced_only_by_force(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (project / "hood.yaml").write_text("version: 1\n")
    assert run_command(["init"]) == 2
    assert "hood.yaml exists already; --force replaces it" in capfd.readouterr().err
    assert (project / "hood.yaml").read_text() == "version: 1\n"
    assert run_command(["init", "--force"]) == 0
    assert "filesystem:" in (project / "hood.yaml").read_text()


def test_what_a_link_leads_to_is_not_overwritten(project: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x")
    (project / "hood.yaml").symlink_to(tmp_path / "precious")
    assert run_command(["init"]) == 2
    assert run_command(["init", "--force"]) == 0
    assert (tmp_path / "precious").read_text() == "x"
    assert not (project / "hood.yaml").is_symlink()


@pytest.mark.parametrize("name", NAMES)
def test_it_can_start_from_a_policy_that_comes_with_the_package(name: str, project: Path) -> None:
    assert run_command(["init", "--policy", name]) == 0
    assert project_policy.load(str(project / "hood.yaml")) == Policy.named(name)
    assert run_command(["policy", "test", "hood.yaml"]) == 0


def test_an_unknown_name_is_told_with_the_nearest(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run_command(["init", "--policy", "web-raeder"]) == 2
    assert "(did you mean 'web-reader'?)" in capfd.readouterr().err
    assert run_command(["init", "--policy", "./x.yaml"]) == 2
    assert os.listdir(project) == []


def test_nothing_is_written_where_it_would_not_count(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    project.chmod(0o1777)
    assert run_command(["init"]) == 2
    assert "every user can write to this folder" in capfd.readouterr().err
    project.chmod(0o777)
    assert run_command(["init"]) == 2
    assert "every user can write to" in capfd.readouterr().err
    assert os.listdir(project) == []


def test_the_file_is_not_writable_for_others_whatever_the_mask(project: Path) -> None:
    before = os.umask(0)
    try:
        assert run_command(["init"]) == 0
    finally:
        os.umask(before)
    assert (project / "hood.yaml").stat().st_mode & 0o777 == 0o644
