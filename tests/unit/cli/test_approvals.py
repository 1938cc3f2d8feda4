"""`hood approvals`, as somebody at a terminal meets it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from unit.tools.approvals.office import POLICY, call

from fumehood.characters import width_of
from fumehood.cli import exitcodes
from fumehood.cli.entry import run_command
from fumehood.tools.approvals import ApprovalRequest, ApprovalStore
from fumehood.tools.approvals.requests import Question

Hood = Callable[..., tuple[int, str, str]]


@pytest.fixture
def hood(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Hood:
    monkeypatch.setenv("FUMEHOOD_APPROVALS", str(tmp_path / "approvals"))
    monkeypatch.setenv("FUMEHOOD_AUDIT", str(tmp_path / "audit"))

    def run(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = run_command(["approvals", *arguments])
        said = capfd.readouterr()
        return code, said.out, said.err

    return run


@pytest.fixture
def three(tmp_path: Path) -> list[ApprovalRequest]:
    store = ApprovalStore(tmp_path / "approvals")
    return [store.ask(Question(call(f"print({number})"), POLICY, 600, "agent")) for number in range(3)]


DAMAGES = {
    "arguments": "arguments = '{}'",
    "no JSON": "arguments = 'x'",
    "another shape": "call = '[]'",
    "no text": "call = CAST(x'ff00' AS TEXT)",
    "a policy of others": "meaning = x'7b7d'",
    "a state that there is none": "state = 'maybe'",
    "a time that is none": "asked_at = 'now'",
    "bytes for text": "asked_by = x'41'",
    "a digest": "digest = 'sha256:0'",
    "due and damaged": "call = 'x', expires_at = 0",
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_request_is_named_and_the_others_are_listed(
    hood: Hood, three: list[ApprovalRequest], damage: str, tmp_path: Path
) -> None:
    first, second, third = three
    with closing(sqlite3.connect(tmp_path / "approvals" / "approvals.db", isolation_level=None)) as connection:
        connection.execute(f"UPDATE requests SET {damage} WHERE id = ?", (second.id,))
    code, out, error = hood("list")
    assert code == exitcodes.PROBLEM_FOUND
    assert [line.split()[0] for line in out.splitlines()] == [first.id[:12], third.id[:12]]
    assert f"reading the request {second.id} failed" in error
    assert [each["id"] for each in json.loads(hood("list", "--json")[1])] == [first.id, third.id]
    assert hood("approve", first.id)[0] == 0
    assert hood("approve", second.id)[0] == exitcodes.OWN_FAILURE
    assert hood("deny", third.id)[0] == 0


def test_a_line_fits_the_terminal_however_wide_its_letters_are(
    hood: Hood, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What flows over would look like a line of its own."""
    monkeypatch.setenv("COLUMNS", "80")
    store = ApprovalStore(tmp_path / "approvals")
    store.ask(Question(call("'" + "\u5b57" * 19 + "ask_deadbeef  11-17 01:00:00 denied'"), POLICY, 600, "agent"))
    (line,) = hood("list")[1].splitlines()
    assert line.endswith("...")
    assert width_of(line) <= 80


def test_what_waits_is_listed(hood: Hood, three: list[ApprovalRequest]) -> None:
    code, out, error = hood("list")
    assert (code, len(out.splitlines()), error) == (0, 3, "")
