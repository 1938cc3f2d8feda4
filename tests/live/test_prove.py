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
from escape.protections import PROTECTIONS
from live.cli_host import hood

SOURCE = Path(__file__).parents[2] / "src"
POLICY = """
name: everything
filesystem:
  mounts: [{source: mounted, target: /data}]
network:
  allow: [{host: api.example.com, ports: [443], methods: [GET]}]
  publish: [8000]
secrets: [{name: EXAMPLE, from_env: HOOD_PROVE_TEST_SECRET, inject: {host: api.example.com}}]
commands: {allow: [ls, echo *]}
resources: {cpu_time: 20s}
"""
PLAIN = "name: plain\n"
# Protection that is taken away -> the trial that notices, and the policy that is proved. NOTICED.md has all of them.
NOTICED = {
    "requests-judged": ("network.allow.ask_what_is_not_allowed", POLICY),
    "network-namespace": ("network.reach_the_host", PLAIN),
    "seccomp": ("system calls.be_without_a_filter", PLAIN),
    "capabilities": ("privileges.find_privileges", PLAIN),
    "landlock": ("filesystem.write_past_landlock", PLAIN),
    "harmless-mounts": ("filesystem.find_a_weak_mount", PLAIN),
    "proc-masks": ("filesystem.read_facts_of_the_host", PLAIN),
    "hidden-processes": ("processes.see_around", PLAIN),
    "ipc-namespace": ("runs.share_with_another_run", PLAIN),
    "rlimits": ("privileges.take_what_the_kernel_counts", PLAIN),
    "named-executables": ("commands.execute_what_is_not_named", POLICY),
    "port-token": ("network.publish.come_in_without_a_token", POLICY),
    "port-token-stripped": ("network.publish.take_the_token_over", POLICY),
    "loopbacks-apart": ("network.shared_loopback.reach_another_sandbox", POLICY),
}
SAMPLE = ("requests-judged", "landlock")


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mounted").mkdir()
    (tmp_path / "mounted" / "file").write_text("of the host\n")
    monkeypatch.setenv("HOOD_PROVE_TEST_SECRET", "a-value-of-the-test-0123456789")
    path = tmp_path / "everything.yaml"
    path.write_text(POLICY)
    return path


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
    assert {"held"} == set(results(tmp_path).values())
    assert len(results(tmp_path)) > 50
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
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = Path(f"/var/tmp/hood-prove-{os.getpid()}")
    shutil.copytree(SOURCE, folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("protection", NOTICED if sampling.is_whole() else SAMPLE)
def test_a_protection_that_is_taken_away_is_noticed(protection: str, policy: Path, copy: Path, tmp_path: Path) -> None:
    for patch in PROTECTIONS[protection]:
        path = copy / "src" / "fumehood" / patch.file
        assert patch.old in path.read_text()
        path.write_text(path.read_text().replace(patch.old, patch.new))
    trial, text = NOTICED[protection]
    policy.write_text(text)
    command = [sys.executable, "-m", "fumehood", "prove", "--policy", policy, "--out", tmp_path, "--json"]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(copy / "src")}, capture_output=True)
    assert done.returncode == 1, done.stderr
    assert results(tmp_path)[trial] == "broken"
