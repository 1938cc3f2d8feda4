"""`hood prove` on this host: it holds with everything in place, and notices protections that are taken away."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import sampling
from escape import proof_trials
from escape.proof_policies import VARIABLES, write_policy
from escape.protections import PROTECTIONS
from escape.seen import noticed, noticing_trials
from live.cli_host import hood

SOURCE = Path(__file__).parents[2] / "src"
# Protections for `make test`; `make test-all` has every one that NOTICED.md has a trial for.
SAMPLE = ("requests-judged", "landlock", "answers-apart", "archive-links", "port-token")


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    return write_policy("rich", tmp_path)


def report_in(folder: Path) -> Path:
    (path,) = folder.glob("proof-*.json")
    return path


def results(folder: Path) -> dict[str, str]:
    observations = json.loads(report_in(folder).read_text())["observations"]
    return {one["name"]: one["result"] for one in observations}


@pytest.mark.timeout(300)
def test_every_control_of_a_rich_policy_holds(policy: Path, tmp_path: Path) -> None:
    done = hood("prove", "--policy", policy, "--out", tmp_path, "--junit", tmp_path / "junit.xml")
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
    apart = {name: result for name, result in results(tmp_path).items() if result != "held"}
    assert apart == {"results.start_what_cannot_start": "does not apply"}  # the policy does not allow the command
    assert len(results(tmp_path)) > 80
    assert b'failures="0"' in (tmp_path / "junit.xml").read_bytes()
    report = report_in(tmp_path)
    assert b"Every control held" in report.with_suffix(".html").read_bytes()
    assert hood("prove", "verify", report, "--policy", policy).returncode == 0
    changed = tmp_path / "changed.json"
    changed.write_text(report.read_text().replace("ENOENT", "EACCES", 1))
    refused = hood("prove", "verify", changed)
    assert (refused.returncode, b"changed afterwards" in refused.stdout) == (1, True)


def test_a_policy_that_leaves_no_time_for_trials_is_not_proved(tmp_path: Path) -> None:
    path = tmp_path / "short.yaml"
    path.write_text("resources: {timeout: 1s}\n")
    done = hood("prove", "--policy", path, "--out", tmp_path, "--json")
    assert done.returncode == 3
    assert "not tested" in set(results(tmp_path).values())


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--out", "/nowhere"], b"not a folder that you can write to"),
        (["verify", "/nowhere.json"], b"cannot be read"),
        (["verify", "/etc/passwd"], b"not a proof report"),
    ],
)
def test_bad_input_is_named(arguments: list[str], told: bytes) -> None:
    done = hood("prove", *arguments)
    assert done.returncode == 2
    assert told in done.stderr


@pytest.fixture
def copy() -> Iterator[Path]:
    """Of the package, as a folder that programs of every user may read."""
    folder = Path(f"/var/tmp/hood-prove-{os.getpid()}")
    shutil.copytree(SOURCE, folder / "src")  # with its bytecode: what is changed has another time, and is compiled
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def take_away(protection: str, copy: Path) -> None:
    for patch in PROTECTIONS[protection]:
        path = copy / "src" / "fumehood" / patch.file
        assert patch.old in path.read_text()
        path.write_text(path.read_text().replace(patch.old, patch.new))


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "protection", [row for row in noticed() if noticing_trials(row) and (sampling.is_whole() or row in SAMPLE)]
)
def test_a_protection_that_is_taken_away_is_noticed(protection: str, copy: Path, tmp_path: Path) -> None:
    take_away(protection, copy)
    for name, trials in noticing_trials(protection).items():
        found = proof_trials.results(copy / "src", write_policy(name, tmp_path), trials, VARIABLES)
        assert "broken" in found.values(), found  # which of them may depend on what ran before


@pytest.mark.timeout(300)
def test_a_proof_in_which_an_attack_gets_through_fails(copy: Path, tmp_path: Path) -> None:
    take_away("hidden-processes", copy)
    command = [sys.executable, "-m", "fumehood", "prove", "--policy", write_policy("plain", tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(copy / "src")}
    done = subprocess.run([*command, "--out", tmp_path, "--json"], env=environment, capture_output=True)
    assert done.returncode == 1, done.stderr
    assert results(tmp_path)["processes.see_around"] == "broken"
