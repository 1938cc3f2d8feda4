"""`hood bench` and `benchmarks/`: what they print is what they measured. How long things take is not tested."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HOOD_BENCH = ("-m", "fumehood", "bench")
BENCHMARKS = ("-m", "benchmarks")
ROOT = Path(__file__).parents[2]


def measured(program: tuple[str, ...], *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *program, *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, cwd=ROOT)


@pytest.mark.parametrize(("program", "group"), [(HOOD_BENCH, "runs"), (BENCHMARKS, "agents")])
def test_a_group_by_itself_has_ratios_of_what_was_measured(program: tuple[str, ...], group: str) -> None:
    done = measured(program, "--json", "--rounds", "2", "--only", group)
    assert done.returncode == 0, done.stderr
    rows = [row for row in json.loads(done.stdout) if not row["missing"]]
    assert rows
    for row in rows:
        assert row["value"] > 0, row
        assert row["ratio"] == pytest.approx(row["value"] / row["against"]) if row["against"] else row["ratio"] is None


def test_people_get_a_table_and_nothing_of_it_in_their_audit_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUMEHOOD_AUDIT", str(tmp_path / "audit"))
    done = measured(HOOD_BENCH, "--rounds", "2", "--only", "cold")
    assert not (tmp_path / "audit").exists()
    head, *lines = done.stdout.splitlines()
    assert head.split() == ["what", "it", "against", "ratio", "budget"]
    assert lines[0].startswith("hood run, cold / python -I -S ")


@pytest.mark.parametrize(
    ("program", "groups"),
    [(HOOD_BENCH, "'runs', 'cold', 'sessions')"), (BENCHMARKS, "'runs', 'cold', 'sessions', 'rivals'")],
)
def test_an_unknown_group_is_named_with_those_that_there_are(program: tuple[str, ...], groups: str) -> None:
    done = measured(program, "--only", "everything")
    assert done.returncode == 2
    assert f"'everything' (choose from {groups}" in done.stderr
