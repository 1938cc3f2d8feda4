"""`hood audit report`: the period's runs, denials and approvals, and whether the log is true."""

from __future__ import annotations

import csv
import sqlite3
from pathlib import Path

import pytest

from fumehood.audit import AuditLog, Trail
from fumehood.audit.events import Attachment, EgressDenied, RunFinished, SandboxOpened
from fumehood.cli.audit import execute
from fumehood.errors import UsageError
from fumehood.tools.approvals.events import ApprovalDenied

HOSTILE = '=HYPERLINK("http://x")<script>alert(1)</script>\x1b[2J'


@pytest.fixture
def log(tmp_path: Path) -> Path:
    folder = tmp_path / "audit"
    trail = Trail(AuditLog.at(folder), who="tester").within(sandbox="box_1")
    attached = Attachment(b"{}")
    trail.write_blocking(
        SandboxOpened("sha256:aa", "analyst", attached, "native", attached, None, None, 1),
        *(finished("success", "exit"), finished("success", "exit"), finished("timeout", "wall_time")),
        EgressDenied("connect", HOSTILE, "no rule opens this name", None, 3),
        ApprovalDenied("ask_1", "python", "sha256:bb", "alice", "not on a Friday"),
    )
    return folder


def finished(status: str, cause: str) -> RunFinished:
    return RunFinished(status, cause, 0, None, None, 1000, 2_000_000, 1, None, None, None, None)


def report(log: Path, tmp_path: Path, *options: str) -> int:
    places = ["--output", str(tmp_path / "r.html"), "--csv", str(tmp_path / "r.csv")]
    return execute(["report", "--log", str(log), *places, *options])


def rows(tmp_path: Path) -> list[dict[str, str]]:
    with open(tmp_path / "r.csv", newline="") as file:
        return list(csv.DictReader(file))


def test_what_happened_is_counted(log: Path, tmp_path: Path) -> None:
    assert report(log, tmp_path) == 0
    found = {(row["section"], row["kind"], row["what"]): row["count"] for row in rows(tmp_path)}
    assert found["run", "success", "exit"] == "2"
    assert found["run", "timeout", "wall_time"] == "1"
    assert found["policy", "analyst", "sha256:aa"] == "1"
    assert found["approval", "approval.denied", "python, alice, not on a Friday"] == "1"
    days = {row["kind"]: row["count"] for row in rows(tmp_path) if row["section"] == "day"}
    assert days == {"sandboxes": "1", "runs": "3", "not successful": "1", "denials": "3", "approvals asked": "0"}
    page = (tmp_path / "r.html").read_text()
    assert "The records of the log are as they were written" in page
    assert "6.0 s" in page


def test_text_of_programs_is_harmless_in_both(log: Path, tmp_path: Path) -> None:
    report(log, tmp_path)
    (denied,) = [row["what"] for row in rows(tmp_path) if row["section"] == "denial"]
    assert denied.startswith("'=HYPERLINK")
    both = (tmp_path / "r.html").read_text() + (tmp_path / "r.csv").read_text()
    assert "<script>" not in (tmp_path / "r.html").read_text()
    assert "\x1b" not in both


@pytest.mark.parametrize(
    "formula", ["=1", "+1", "-1", "@x", "\t=1", "\r=1", "\uff1d1", "\uff0b1", "\uff0d1", "\uff20x"]
)
def test_no_text_of_a_program_is_a_formula(tmp_path: Path, formula: str) -> None:
    trail = Trail(AuditLog.at(tmp_path / "audit"), who="tester").within(sandbox="box_1")
    trail.write_blocking(EgressDenied("connect", formula, "no rule opens this name", None, 1))
    assert report(tmp_path / "audit", tmp_path) == 0
    (denied,) = [row["what"] for row in rows(tmp_path) if row["section"] == "denial"]
    assert denied[0] not in "=+-@\t\r\uff1d\uff0b\uff0d\uff20"


def test_records_of_other_times_are_left_out(log: Path, tmp_path: Path) -> None:
    assert report(log, tmp_path, "--since", "2000-01-01", "--until", "2001-01-01") == 0
    assert rows(tmp_path) == []


def test_a_log_that_was_changed_is_reported_as_such(log: Path, tmp_path: Path) -> None:
    with sqlite3.connect(log / "audit.db") as connection:
        connection.execute("UPDATE records SET body = replace(body, 'timeout', 'success') WHERE kind = 'run.finished'")
    assert report(log, tmp_path) == 1
    assert "not all as they were written" in (tmp_path / "r.html").read_text()


def test_a_period_that_ends_before_it_begins_is_refused(log: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--until 3d is not after --since 2d"):
        report(log, tmp_path, "--since", "2d", "--until", "3d")
    assert not (tmp_path / "r.html").exists()


def test_a_dash_is_standard_output(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert execute(["report", "--log", str(log), "--output", "-"]) == 0
    assert capsys.readouterr().out.startswith("<!doctype html>")
    assert not (tmp_path / "-").exists()


def test_a_page_says_how_much_of_the_log_is_not_signed_yet(log: Path, tmp_path: Path) -> None:
    report(log, tmp_path)
    assert "not signed yet" in (tmp_path / "r.html").read_text()
    AuditLog.at(log).checkpoint()
    report(log, tmp_path)
    assert "not signed yet" not in (tmp_path / "r.html").read_text()


def test_a_policy_has_the_time_of_its_first_use(log: Path, tmp_path: Path) -> None:
    report(log, tmp_path)
    (policy,) = [row for row in rows(tmp_path) if row["section"] == "policy"]
    assert policy["time"].startswith("20")
