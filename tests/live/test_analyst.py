"""The analyst's scenario, as the example shows it: a snapshot goes in, a table and a picture come out, nothing else."""

from __future__ import annotations

import csv
import hashlib
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from live.loaded_hood import run_python

from fumehood import Policy, Sandbox, Session, Status

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "analyst"
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    with Sandbox(Policy.load(EXAMPLE / "policy.yaml")) as opened:
        yield opened


@pytest.fixture
def session(box: Sandbox) -> Iterator[Session]:
    with box.session() as opened:
        yield opened


def expected() -> dict[str, float]:
    revenue: dict[str, float] = defaultdict(float)
    with open(EXAMPLE / "snapshots" / "sales.csv", newline="") as stream:
        for row in csv.DictReader(stream):
            revenue[row["region"]] += int(row["units"]) * float(row["price"])
    return {region: round(sum_, 2) for region, sum_ in revenue.items()}


def test_the_example_brings_out_a_table_and_a_picture(tmp_path: Path) -> None:
    told = run_python(EXAMPLE / "analyse.py", tmp_path)
    assert told.returncode == 0, told.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["revenue.csv", "revenue.png"]
    with open(tmp_path / "revenue.csv", newline="") as stream:
        assert {row["region"]: float(row["revenue"]) for row in csv.DictReader(stream)} == expected()
    assert (tmp_path / "revenue.png").read_bytes().startswith(PNG)
    for word in ("text/html", "image/png", "Read-only file system", "Network is unreachable", "No such file"):
        assert word in told.stdout


def test_frames_and_figures_are_shown_in_rich_forms(session: Session) -> None:
    frame = session.run("import pandas as pd\npd.DataFrame({'a': [1, 2]})").displays[0].data
    assert "<table" in cast("str", frame["text/html"])
    assert frame["text/plain"] == "   a\n0  1\n1  2"
    (figure,) = session.run("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()").displays
    assert cast("bytes", figure.data["image/png"]).startswith(PNG)
    left_open = session.run("plt.plot([1, 2]);").displays
    assert [cast("bytes", display.data["image/png"])[:8] == PNG for display in left_open] == [True]


def test_artifacts_are_what_the_outputs_name(box: Sandbox, session: Session) -> None:
    session.run("import os\nos.makedirs('out', exist_ok=True)")
    (artifact,) = session.run("open('out/x.csv', 'w').write('1')\nopen('out/y.txt', 'w').write('2')").artifacts
    assert (artifact.path, artifact.media_type, artifact.size) == ("out/x.csv", "text/csv", 1)
    assert artifact.sha256 == hashlib.sha256(box.files.read("out/x.csv")).hexdigest()


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("open('/data/sales.csv', 'w')", "Read-only file system: '/data/sales.csv'"),
        ("import os\nos.remove('/data/sales.csv')", "Read-only file system: '/data/sales.csv'"),
        ("import socket\nsocket.create_connection(('203.0.113.10', 443), 5)", "Network is unreachable"),
        (f"open({str(EXAMPLE / 'policy.yaml')!r})", "No such file or directory"),
        ("open('/etc/shadow')", "No such file or directory: '/etc/shadow'"),
    ],
)
def test_what_is_forbidden_fails_at_once_with_a_clear_word(session: Session, source: str, words: str) -> None:
    result = session.run(source)
    assert result.status is Status.ERROR
    assert words in result.stderr.splitlines()[-1]


def test_the_snapshot_is_as_it_was() -> None:
    before = subprocess.run(["sha256sum", EXAMPLE / "snapshots" / "sales.csv"], capture_output=True).stdout
    with Sandbox(Policy.load(EXAMPLE / "policy.yaml"), session=True) as box:
        assert "Read-only" in box.run("import os\nos.truncate('/data/sales.csv', 0)").stderr
    assert subprocess.run(["sha256sum", EXAMPLE / "snapshots" / "sales.csv"], capture_output=True).stdout == before
