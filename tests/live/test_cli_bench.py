"""`hood bench`: what it prints is what it measured. How long things take is not tested."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HOOD = (sys.executable, "-m", "fumehood", "bench")


def bench(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*HOOD, *options], capture_output=True, text=True, timeout=100, check=False)


@pytest.mark.parametrize("group", ["runs", "agents"])
def test_a_group_by_itself_has_ratios_of_what_was_measured(group: str) -> None:
    done = bench("--json", "--rounds", "3", "--only", group)
    assert done.returncode == 0, done.stderr
    rows = [row for row in json.loads(done.stdout) if not row["missing"]]
    assert rows
    for row in rows:
        assert row["value"] > 0, row
        assert row["ratio"] == pytest.approx(row["value"] / row["against"]) if row["against"] else row["ratio"] is None


def test_people_get_a_table() -> None:
    done = bench("--rounds", "3", "--only", "cold")
    head, *lines = done.stdout.splitlines()
    assert head.split() == ["what", "it", "against", "ratio", "budget"]
    assert lines[0].startswith("hood run, cold / python -I -S ")


def test_an_unknown_group_is_named_with_those_that_there_are() -> None:
    done = bench("--only", "everything")
    assert done.returncode == 2
    assert "'everything' (choose from 'runs', 'cold', 'audit'" in done.stderr
