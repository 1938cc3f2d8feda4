"""The table in docs/audit.md: what is done to a log, and what `hood audit verify` says of it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from unit.audit.logs import editing, make_log, verdict, write
from unit.audit.tamperings import TAMPERINGS, append, remove_beginning_of, roll_back, sign_end

from fumehood.audit import AuditLog, Query, Trail
from fumehood.audit.inspection import check, open_store
from fumehood.audit.retention import prune
from fumehood.errors import AuditError, UsageError

ROOT = Path(__file__).resolve().parents[3]
ROW = re.compile(r"^\| ([a-z][^|]+?) \| (`[^|]+`|nothing[^|]*?) \|$", re.MULTILINE)
ROLLED_BACK = "roll back to an older copy, a checkpoint is kept elsewhere"
COPIED = "remove the beginning, and add the record of a pruning from another state of the log"
BORROWED = "remove the beginning, and add the record of a pruning of another log with the same key"
NEVER = "9999-01-01T00:00:00.000000Z"


def table() -> dict[str, list[str]]:
    text = (ROOT / "docs" / "audit.md").read_text()
    return {name: re.findall(r"`([^`]+)`", said) for name, said in ROW.findall(text)}


def without_times(lines: list[str]) -> list[str]:
    return [re.sub(r" on \S+Z$", " on ...", line) for line in lines]


pytestmark = pytest.mark.anyio


def test_the_table_has_every_tampering() -> None:
    assert set(table()) == {*TAMPERINGS, ROLLED_BACK, COPIED, BORROWED}


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


async def test_the_record_of_a_pruning_counts_in_no_other_state_of_the_log(tmp_path: Path) -> None:
    log, other = await make_log(tmp_path / "log"), tmp_path / "other"
    shutil.copytree(log.folder, other)
    announcement = await announce(AuditLog.at(other))
    await write(log, "fifteen")
    with editing(log.folder) as connection:
        remove_beginning_of(connection)
        append(connection, {**announcement, "seq": 16})
        sign_end(connection)
    assert verdict(log.folder) == table()[COPIED]


async def test_the_record_of_a_pruning_counts_behind_no_other_records(tmp_path: Path) -> None:
    """It has the number that it was written with, and the record before it is another one."""
    log, other = await make_log(tmp_path / "log"), tmp_path / "other"
    shutil.copytree(log.folder, other)
    await write(log, "fifteen")
    again = AuditLog.at(other)
    await write(again, "another fifteen")
    announcement = await announce(again)
    with editing(log.folder) as connection:
        remove_beginning_of(connection)
        append(connection, announcement)
        sign_end(connection)
    assert verdict(log.folder) == [
        "record 11: removed: records 1 to 10 are missing, and no signed record says that they were pruned",
        "record 16: rewritten: this record of a pruning was signed when the records before it were others",
    ]
    with pytest.raises(AuditError, match="no record that is signed with the key says that they were pruned"):
        log.checkpoint()


async def test_the_record_of_a_pruning_counts_in_no_other_log(tmp_path: Path) -> None:
    ours, theirs = await make_log(tmp_path / "ours"), tmp_path / "theirs"
    theirs.mkdir(mode=0o700)
    shutil.copy(ours.folder / "key.pem", theirs)
    other = await make_log(theirs)
    announcement = await announce(other)
    with editing(ours.folder) as connection:
        remove_beginning_of(connection)
        append(connection, announcement)
        sign_end(connection)
    name = announcement["data"]["log"]
    assert [each.replace(name, "log_...") for each in verdict(ours.folder)] == table()[BORROWED]


async def announce(log: AuditLog) -> dict[str, Any]:
    """The record of a real pruning that leaves record 11 as the first."""
    assert await prune(log, Trail(log, who="me"), before=NEVER) == 10
    (record,) = log.find(Query(kind="log.pruned"))
    return record.parse()


PRETENDED = "remove the beginning, and add a record that says it was pruned"


@pytest.mark.parametrize("is_open", [True, False])
async def test_a_writer_does_not_sign_a_log_that_lost_its_beginning(tmp_path: Path, *, is_open: bool) -> None:
    log = await make_log(tmp_path / "log")
    if not is_open:
        log.close()
    TAMPERINGS[PRETENDED](log.folder)
    writer = AuditLog.at(log.folder)
    with pytest.raises(AuditError, match=r"was changed by another program.*records 1 to 10 are missing"):
        writer.checkpoint()
    with pytest.raises(AuditError, match=r"was changed by another program"):
        writer.sign_all()
    assert await prune(writer, Trail(writer, who="me"), before=NEVER) == 0
    assert writer.head().checkpoint_seq == 11
    assert verdict(log.folder) == table()[PRETENDED]


async def test_a_writer_signs_no_log_that_lost_what_the_checkpoint_beside_it_vouches_for(tmp_path: Path) -> None:
    log = await make_log(tmp_path / "log")
    TAMPERINGS["cut off the end with a checkpoint, and the note of the end"](log.folder)
    with pytest.raises(AuditError, match=r"was changed by another program.*checkpoint.json.*record 11"):
        log.checkpoint()
    assert without_times(verdict(log.folder))[0].startswith("record 11: rolled back, or cut off")


async def test_an_emptied_log_is_not_begun_anew_in_silence(tmp_path: Path) -> None:
    log = await make_log(tmp_path / "log")
    log.close()
    TAMPERINGS["empty the log"](log.folder)
    for _ in range(2):
        with pytest.raises(AuditError, match="was changed by another program"):
            await write(AuditLog.at(log.folder), "one")


async def test_a_pruned_log_goes_on_in_every_process(tmp_path: Path) -> None:
    log = await make_log(tmp_path / "log")
    await announce(log)
    log.checkpoint()
    log.close()
    again = AuditLog.at(log.folder)
    await write(again, "goes on")
    assert again.checkpoint().seq == again.head().seq
    assert await prune(again, Trail(again, who="me"), before=NEVER) > 0
    again.checkpoint()
    assert verdict(log.folder) == []


@pytest.mark.parametrize("is_pruned", [True, False])
async def test_another_key_than_the_logs_signs_nothing_and_is_called_that(tmp_path: Path, *, is_pruned: bool) -> None:
    log, other = await make_log(tmp_path / "log"), await make_log(tmp_path / "other")
    if is_pruned:
        await announce(log)
    log.close()
    shutil.copy(other.folder / "key.pem", log.folder)
    with pytest.raises(AuditError, match="is another key than the one that the audit log was begun with"):
        AuditLog.at(log.folder).checkpoint()


async def test_a_pruning_ends_at_a_checkpoint_whose_time_is_signed(tmp_path: Path) -> None:
    """Who can write the file could have it remove as much as they like."""
    log = await make_log(tmp_path / "log")
    with editing(log.folder) as connection:
        connection.execute("UPDATE records SET time = '2020-01-01T00:00:00.000000Z' WHERE seq = 11")
    with pytest.raises(AuditError, match=r"was changed by another program.*record 11 is not the checkpoint"):
        await prune(log, Trail(log, who="me"), before="2021-01-01T00:00:00.000000Z", archive=tmp_path / "old")
    assert check(log.folder, None).records == 14
    assert not (tmp_path / "old").exists()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE records SET body = replace(body, 'four', 'nine') WHERE seq = 4",
        "DELETE FROM records WHERE seq = 4",
        "UPDATE records SET kind = 'x' WHERE seq = 4",
        "UPDATE attachments SET data = x'00'",
        "DELETE FROM attachments",
    ],
)
async def test_what_was_changed_does_not_go_away_with_a_pruning(tmp_path: Path, statement: str) -> None:
    log = await make_log(tmp_path / "log")
    with editing(log.folder) as connection:
        assert connection.execute(statement).rowcount == 1
    said = verdict(log.folder)
    with pytest.raises(AuditError, match="nothing was removed, since the log does not verify: record"):
        await prune(log, Trail(log, who="me"), before=NEVER, archive=tmp_path / "old")
    assert verdict(log.folder) == said != []
    assert not (tmp_path / "old").exists()


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


CHECKPOINT_FORGERIES: dict[str, Callable[[str], str]] = {
    "another user": lambda text: text.replace('"who": "', '"who": "mallory '),
    "another key": lambda text: re.sub(r'"key": "\w+"', f'"key": "{"0" * 64}"', text),
    "a key twice": lambda text: text.replace('{"', '{"seq": 5, "'),
    "a field more": lambda text: text.replace('{"', '{"approved": "yes", "'),
}


@pytest.mark.parametrize("name", CHECKPOINT_FORGERIES)
async def test_every_field_of_a_kept_checkpoint_is_signed(name: str, tmp_path: Path) -> None:
    log, kept = await make_log(tmp_path / "log"), tmp_path / "kept.json"
    text = log.checkpoint().to_json()
    kept.write_text(CHECKPOINT_FORGERIES[name](text))
    assert kept.read_text() != text
    try:
        said = verdict(log.folder, kept)
    except UsageError as error:
        said = [str(error)]
    assert "is not signed with the key" in said[0] or "not a checkpoint" in said[0]


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


async def test_records_behind_the_end_are_shown_to_nobody(tmp_path: Path) -> None:
    log = await make_log(tmp_path / "log")
    before = list(log.find(Query()))
    TAMPERINGS["insert records behind the end"](log.folder)
    assert list(log.find(Query())) == before
    assert list(log.find(Query(run_id="run_9"))) == list(log.find(Query(after=14))) == []
    assert [each.seq for each in log.find(Query(newest_first=True, limit=1))] == [14]


async def test_a_writer_that_meets_records_behind_the_end_says_so(tmp_path: Path) -> None:
    log = await make_log(tmp_path / "log")
    TAMPERINGS["insert records behind the end"](log.folder)
    with pytest.raises(
        AuditError, match=r"was changed by another program.*`hood audit verify` says more. Move the whole"
    ):
        await write(log, *map(str, range(15, 22)))
    assert log.head().seq == 19


@pytest.mark.parametrize("name", ["add a trigger", "change an index", "add a generated column"])
async def test_nothing_is_written_through_a_schema_that_is_not_ours(name: str, tmp_path: Path) -> None:
    log = await make_log(tmp_path / "log")
    log.close()
    TAMPERINGS[name](log.folder)
    with pytest.raises(AuditError, match=r"was changed by another program.*is not as Fumehood makes it"):
        AuditLog.at(log.folder)


@pytest.mark.parametrize("name", ["put a view in place of the records", "change an index", "add a generated column"])
async def test_nothing_is_shown_through_a_schema_that_is_not_ours(name: str, tmp_path: Path) -> None:
    log = await make_log(tmp_path / "log")
    log.close()
    TAMPERINGS[name](log.folder)
    with pytest.raises(AuditError, match=r"was changed by another program, and is not read: the .* is not as Fumehood"):
        open_store(log.folder)


async def test_the_note_of_the_newest_checkpoint_cannot_put_the_next_one_off(tmp_path: Path) -> None:
    log = await make_log(tmp_path / "log")
    log.close()
    with editing(log.folder) as connection:
        connection.execute("UPDATE head SET checkpoint_seq = 1000000, checkpoint_time = 'never'")
    later = AuditLog.at(log.folder)
    await write(later, "fifteen")
    assert later.head().checkpoint_seq == 16


async def test_a_checkpoint_from_before_the_first_record_is_a_finding(tmp_path: Path) -> None:
    log, kept = await make_log(tmp_path / "log"), tmp_path / "kept.json"
    kept.write_text((log.folder / "checkpoint.json").read_text())
    log.checkpoint()
    await prune(log, Trail(log, who="me"), before="9999-01-01T00:00:00.000000Z")
    assert verdict(log.folder) == []
    (said,) = verdict(log.folder, kept)
    assert said.startswith("record 11: the checkpoint that was kept is older than the log, which begins with record 15")


async def test_a_log_that_went_on_from_an_older_copy_is_known_by_a_checkpoint_of_the_same_number(
    tmp_path: Path,
) -> None:
    """Both checkpoints are signed with the key, and only one of them is of this log."""
    log, kept = await make_log(tmp_path / "log"), tmp_path / "kept.json"
    shutil.copytree(log.folder, tmp_path / "older")
    await write(log, "fifteen")
    kept.write_text(log.checkpoint().to_json())
    log.close()
    roll_back(log.folder, tmp_path / "older")
    again = AuditLog.at(log.folder)
    await write(again, "another fifteen")
    again.checkpoint()
    assert verdict(log.folder) == []
    assert verdict(log.folder, kept) == [
        "record 16: rewritten: the checkpoint that was kept was signed for other records before it"
    ]


async def test_a_missing_checkpoint_beside_the_log_is_told(tmp_path: Path) -> None:
    log = await make_log(tmp_path / "log")
    (log.folder / "checkpoint.json").unlink()
    (note,) = check(log.folder, None).notes
    assert "no checkpoint lies beside the log" in note


async def test_a_schema_that_is_no_text_is_reported_and_not_written_to(tmp_path: Path) -> None:
    """SQLite quotes it in its error, which is no text then either."""
    log = await make_log(tmp_path / "log")
    log.close()
    with editing(log.folder) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_schema SET name = CAST(x'd5ff' AS TEXT), sql = 'no' WHERE type = 'index'")
    with pytest.raises(AuditError):
        check(log.folder, None)
    with pytest.raises(AuditError):
        AuditLog.at(log.folder)
