"""What other repositories use of this one: the hooks of pre-commit, and the action."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
SOUND = "version: 1\ntests: [{connect: 'example.com:443', expect: deny}]\n"
UNSOUND = "version: 1\ntests: [{connect: 'example.com:443', expect: allow}]\n"
BIN = Path(sys.executable).parent


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "policies").mkdir()
    (tmp_path / "hood.yaml").write_text(SOUND)
    (tmp_path / "policies/one.yaml").write_text(SOUND)
    (tmp_path / "other.yaml").write_text("not: a policy\n")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    return tmp_path


@pytest.mark.parametrize("name", ["hood-policy-test", "hood-policy-check"])
def test_a_hook_finds_the_policies_and_fails_with_them(name: str, repository: Path, tmp_path: Path) -> None:
    """pre-commit itself runs it, with the command that is installed here instead of in an environment of its own."""
    hook = next(hook for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text()) if hook["id"] == name)
    assert hook["language"] == "python"
    hook |= {"language": "system", "verbose": True}
    config = {"repos": [{"repo": "local", "hooks": [hook]}]}
    (repository / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config))
    done = commit(repository)
    assert done.returncode == 0, done.stdout
    assert "hood.yaml" in done.stdout
    assert "policies/one.yaml" in done.stdout or "2 policies" in done.stdout
    assert "other.yaml" not in done.stdout
    (repository / "--junit=policies").mkdir()
    (repository / "--junit=policies/hood.yaml").write_text(SOUND)
    assert commit(repository).returncode == 0
    assert not (repository / "policies/hood.yaml").exists()
    (repository / "policies/one.yaml").write_text(UNSOUND if name == "hood-policy-test" else "versoin: 1\n")
    assert commit(repository).returncode == 1


def commit(repository: Path) -> subprocess.CompletedProcess[str]:
    subprocess.run(["git", "add", "-A"], cwd=repository, check=True)
    # A hook of git's that runs these tests would have pre-commit look at another repository.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    variables = {**kept, "PATH": f"{BIN}:{os.environ['PATH']}", "PRE_COMMIT_HOME": f"{repository}.cache"}
    command = [BIN / "pre-commit", "run"]
    return subprocess.run(command, cwd=repository, env=variables, capture_output=True, text=True)


def step(name: str) -> dict[str, Any]:
    return next(
        step for step in yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"] if step["name"] == name
    )


def act(repository: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    """As GitHub runs a step of a composite action with `shell: bash`."""
    declared = yaml.safe_load((ROOT / "action.yml").read_text())["inputs"]
    values = {name: inputs.get(name, about["default"]) for name, about in declared.items()}
    variables = {name: values[text.split(".")[1].split()[0]] for name, text in step("test")["env"].items()}
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step("test")["run"]]
    surroundings = {**os.environ, **variables, "PATH": f"{BIN}:{os.environ['PATH']}"}
    return subprocess.run(command, cwd=repository, env=surroundings, capture_output=True, text=True)


def test_the_action_tests_what_it_is_given(repository: Path) -> None:
    done = act(repository)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "2 policies, 2 tests: 2 passed")
    done = act(repository, path="hood.yaml\n\n  \n", live="true", junit="out.xml")
    assert done.stdout.splitlines()[-1] == "1 policy, 1 test: 1 passed, 1 of them tried live"
    assert (repository / "out.xml").exists()
    (repository / "policies/a b.yaml").write_text(UNSOUND)
    assert act(repository, path="hood.yaml\npolicies/a b.yaml").returncode == 1


def test_the_action_does_not_take_another_word_for_a_no(repository: Path) -> None:
    done = act(repository, live="yes")
    assert (done.returncode, done.stderr) == (2, "live must be true or false\n")


def test_the_action_installs_without_running_anything_of_the_repository(repository: Path, tmp_path: Path) -> None:
    """Its first line in a folder with modules that `python -m` would prefer; nothing is installed from elsewhere."""
    for name in ("venv", "logging", "subprocess"):
        (repository / f"{name}.py").write_text("open('ran', 'w')\n")
    command = step("install")["run"].splitlines()[0] + " --without-pip"
    surroundings = {**os.environ, "RUNNER_TEMP": str(tmp_path / "temp")}
    subprocess.run(["bash", "-ec", command], cwd=repository, env=surroundings, check=True)
    assert (tmp_path / "temp/fumehood/bin/python").exists()
    assert not (repository / "ran").exists()


def test_no_input_of_the_action_is_run(repository: Path) -> None:
    for text in ("$(touch ran)", "'; touch ran; '", "--junit=ran", "x`touch ran`"):
        assert act(repository, path=text).returncode == 2
    assert not (repository / "ran").exists()
    assert "${{" not in step("test")["run"] + step("install")["run"]
