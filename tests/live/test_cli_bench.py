"""`hood bench` and `benchmarks/`: what they print is what they measured. How long things take is not tested."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from live.loaded_hood import run_hood, run_python

ROOT = Path(__file__).parents[2]
Bench = Callable[..., subprocess.CompletedProcess[str]]
HOOD_BENCH: Bench = partial(run_hood, "bench", cwd=ROOT)
BENCHMARKS: Bench = partial(
    run_python, "-c", "import runpy; runpy.run_module('benchmarks', run_name='__main__', alter_sys=True)", cwd=ROOT
)


@pytest.mark.parametrize(("program", "group"), [(HOOD_BENCH, "runs"), (BENCHMARKS, "agents")], ids=["hood", "all"])
def test_a_group_by_itself_has_ratios_of_what_was_measured(program: Bench, group: str) -> None:
    done = program("--json", "--rounds", "2", "--only", group)
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
    done = HOOD_BENCH("--rounds", "2", "--only", "cold")
    assert not (tmp_path / "audit").exists()
    head, *lines = done.stdout.splitlines()
    assert head.split() == ["what", "it", "against", "ratio", "budget"]
    assert lines[0].startswith("hood run, cold / python -I -S ")


@pytest.mark.parametrize(
    ("program", "groups"),
    [(HOOD_BENCH, "'runs', 'cold', 'sessions')"), (BENCHMARKS, "'runs', 'cold', 'sessions', 'rivals'")],
    ids=["hood", "all"],
)
def test_an_unknown_group_is_named_with_those_that_there_are(program: Bench, groups: str) -> None:
    done = program("--only", "everything")
    assert done.returncode == 2
    assert f"'everything' (choose from {groups}" in done.stderr
