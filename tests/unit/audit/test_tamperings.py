"""The table in docs/audit.md: what is done to a log, and what `hood audit verify` says of it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from unit.audit.logs import make_log, verdict, write
from unit.audit.tamperings import TAMPERINGS, roll_back

from fumehood.audit import AuditLog
from fumehood.audit.reading import check

ROOT = Path(__file__).resolve().parents[3]
ROW = re.compile(r"^\| ([a-z][^|]+?) \| (`[^|]+`|nothing[^|]*?) \|$", re.MULTILINE)
ROLLED_BACK = "roll back to an older copy, a checkpoint is kept elsewhere"


def table() -> dict[str, list[str]]:
    text = (ROOT / "docs" / "audit.md").read_text()
    return {name: re.findall(r"`([^`]+)`", said) for name, said in ROW.findall(text)}


def without_times(lines: list[str]) -> list[str]:
    return [re.sub(r" on \S+Z$", " on ...", line) for line in lines]


pytestmark = pytest.mark.anyio


def test_the_table_has_every_tampering() -> None:
    assert set(table()) == {*TAMPERINGS, ROLLED_BACK}


@pytest.mark.parametrize("name", TAMPERINGS)
async def test_verify_says_what_was_done(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "log"
    await make_log(folder)
    assert verdict(folder) == []
    TAMPERINGS[name](folder)
    assert without_times(verdict(folder)) == table()[name]


async def test_an_older_copy_is_known_by_a_checkpoint_kept_elsewhere(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "log", tmp_path / "elsewhere.json"
    log = await make_log(folder)
    shutil.copytree(folder, tmp_path / "older")
    await write(log, "fifteen")
    elsewhere.write_text(log.checkpoint().to_json())
    assert verdict(folder, elsewhere) == []
    roll_back(folder, tmp_path / "older")
    assert verdict(folder) == []
    assert without_times(verdict(folder, elsewhere)) == table()[ROLLED_BACK]


async def test_a_checkpoint_of_another_log_is_not_taken_for_one_of_this(tmp_path: Path) -> None:
    ours, theirs = await make_log(tmp_path / "ours"), tmp_path / "theirs"
    theirs.mkdir(mode=0o700)
    shutil.copy(ours.folder / "key.pem", theirs)
    (tmp_path / "kept").write_text((await make_log(theirs)).checkpoint().to_json())
    assert "belongs to another log" in verdict(ours.folder, tmp_path / "kept")[0]


async def test_a_checkpoint_of_another_key_is_no_witness(tmp_path: Path) -> None:
    ours, theirs = await make_log(tmp_path / "ours"), await make_log(tmp_path / "theirs")
    (tmp_path / "kept").write_text(theirs.checkpoint().to_json())
    assert "is not signed with the key" in verdict(ours.folder, tmp_path / "kept")[0]


async def test_another_key_than_the_owners_signs_nothing(tmp_path: Path) -> None:
    """Whoever replaces log and key together is caught by the public key that was kept elsewhere."""
    ours, theirs = await make_log(tmp_path / "ours"), await make_log(tmp_path / "theirs")
    assert check(theirs.folder, None).ok
    report = check(theirs.folder, ours.folder / "key.pub")
    assert [problem.seq for problem in report.problems][:2] == [2, 11]
    assert report.signed == 0


async def test_a_log_says_how_much_of_it_is_signed(tmp_path: Path) -> None:
    log = await make_log(tmp_path / "log")
    report = check(log.folder, None)
    assert (report.first, report.last, report.records, report.signed) == (1, 14, 14, 11)
    assert AuditLog.at(log.folder) is log
