"""Records that leave the log: exports, archives and what is pruned, spans; and what can still be proved then."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from unit.audit.logs import editing, make_log, problems, verdict, write

from fumehood.audit import AuditEvent, AuditLog, Digest, Query, Trail
from fumehood.audit.events import RunBroke, RunStarted
from fumehood.audit.export import lines, read_attachments, read_records
from fumehood.audit.reading import check
from fumehood.audit.retention import prune
from fumehood.audit.spans import send
from fumehood.errors import UsageError

pytestmark = pytest.mark.anyio

NEVER = "9999-01-01T00:00:00.000000Z"


async def test_an_export_verifies_like_the_log(tmp_path: Path) -> None:
    log, export = await make_log(tmp_path / "log"), tmp_path / "export.jsonl"
    export.write_text("".join(lines(log.find(Query()), log.attachment)))
    report = check(export, log.folder / "key.pub")
    assert (report.ok, report.last, report.signed) == (True, 14, 11)
    assert list(read_records(export)) == list(log.find(Query()))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("seven", "SEVEN", "record 7: edited, or what comes before it was: its hash does not fit"),
        ("YXR0YWNoZWQg", "YXR0YWNoZWQh", "record 5: the attachment 289f1ade46fb was edited"),
        ('"seq":7', '"seq":17', "record 17: removed: records 7 to 16 are missing before it"),
    ],
)
async def test_a_changed_export_does_not(tmp_path: Path, old: str, new: str, said: str) -> None:
    log, export = await make_log(tmp_path / "log"), tmp_path / "export.jsonl"
    export.write_text("".join(lines(log.find(Query()), log.attachment)).replace(old, new))
    assert said in problems(check(export, log.folder / "key.pub"))


@pytest.mark.parametrize("seq", [0, -5])
@pytest.mark.parametrize("place", [0, 2, 100])
async def test_an_export_with_a_record_outside_of_the_log_does_not(tmp_path: Path, seq: int, place: int) -> None:
    log, export = await make_log(tmp_path / "log"), tmp_path / "export.jsonl"
    whole = list(lines(log.find(Query()), log.attachment))
    body = f'{{"data":{{}},"ids":{{}},"kind":"x","seq":{seq},"time":"2026-01-01T00:00:00.000000Z","v":1,"who":"me"}}'
    whole.insert(place, f'{{"hash":"{"00" * 32}","record":{body}}}\n')
    export.write_text("".join(whole))
    (problem,) = problems(check(export, log.folder / "key.pub"))
    assert f"inserted: record {seq} lies outside of the log" in problem


FORGERIES: dict[str, Callable[[str], str]] = {
    "a key twice": lambda line: line.replace('"record":{', '"record":{"kind":"FORGED","who":"mallory",'),
    "a key more": lambda line: line.replace('"record":', '"verdict":"FORGED","record":'),
    "a key behind": lambda line: line.replace("}}\n", '},"verdict":"FORGED"}\n'),
    "a hash twice": lambda line: line.replace('{"hash"', '{"hash":"FORGED","hash"'),
    "spaces": lambda line: line.replace(",", ", "),
    "another order": lambda line: json.dumps(dict(reversed(json.loads(line).items()))) + "\n",
    "an escape": lambda line: line.replace('"tester"', '"\\u0074ester"'),
    "another end of the line": lambda line: line.replace("\n", "\r\n"),
    "none": lambda line: line.rstrip("\n"),
}


RECORD, ATTACHMENT = 6, -1
OF_ATTACHMENTS = ("spaces", "another order", "another end of the line", "none")


@pytest.mark.parametrize(
    ("which", "name"), [*((RECORD, name) for name in FORGERIES), *((ATTACHMENT, name) for name in OF_ATTACHMENTS)]
)
async def test_an_export_verifies_only_as_it_was_written(tmp_path: Path, which: int, name: str) -> None:
    """Readers that take the first of two keys, or `grep`, would see something that nobody has signed."""
    log, export = await make_log(tmp_path / "log"), tmp_path / "export.jsonl"
    rows = list(lines(log.find(Query()), log.attachment))
    forged = FORGERIES[name](rows[which])
    assert forged != rows[which]
    rows[which] = forged
    export.write_bytes("".join(rows).encode())
    with pytest.raises(UsageError, match=r"export\.jsonl:\d+: not a line of an export"):
        check(export, log.folder / "key.pub")


@pytest.mark.parametrize("line", ["", "x", "[]", '{"hash": "zz", "record": {}}', '{"hash": "", "record": {"seq": 1}}'])
async def test_what_is_no_export_is_refused_by_file_and_line(tmp_path: Path, line: str) -> None:
    log, export = await make_log(tmp_path / "log"), tmp_path / "export.jsonl"
    export.write_text(next(lines(log.find(Query()), log.attachment)) + line + "\n")
    with pytest.raises(UsageError, match=r"export\.jsonl:2: not a line of an export"):
        check(export, log.folder / "key.pub")


async def test_what_is_pruned_is_told_and_the_rest_verifies(tmp_path: Path) -> None:
    log, archive = await make_log(tmp_path / "log"), tmp_path / "old.jsonl"
    assert await prune(log, Trail(log, who="me"), before=NEVER, archive=archive) == 10
    report = check(log.folder, None)
    assert (problems(report), report.first, report.signed) == ([], 11, 16)
    (told,) = log.find(Query(kind="log.pruned"))
    assert told.data == {"first": 11, "records": 10, "archive": str(archive)}
    assert verdict(log.folder) == []
    old = check(archive, log.folder / "key.pub")
    assert (old.ok, old.first, old.last, old.signed) == (True, 1, 11, 11)
    assert list(read_attachments(archive)) == [(Digest.of(b"attached to five").sha256, b"attached to five")]
    await write(log, "goes on")
    assert verdict(log.folder) == []


async def test_an_archive_that_follows_another_verifies_with_that(tmp_path: Path) -> None:
    """Its last checkpoint is older than the record of the first pruning, which it therefore does not hold."""
    log, key = await make_log(tmp_path / "log"), tmp_path / "log" / "key.pub"
    trail, first, second = Trail(log, who="me"), tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    log.checkpoint()
    times = {record.seq: record.time for record in log.find(Query())}
    assert await prune(log, trail, before=times[12], archive=first) == 10
    told = next(log.find(Query(kind="log.pruned"))).time
    assert await prune(log, trail, before=told, archive=second) == 4
    assert check(first, key).ok
    assert check(second, key, [first]).ok
    assert verdict(log.folder) == []
    (said,) = problems(check(second, key))
    assert said.endswith("of an archive that follows another one, give that one with --checkpoint")


async def test_a_log_may_not_begin_with_a_checkpoint_only_because_it_was_kept(tmp_path: Path) -> None:
    log = await make_log(tmp_path / "log")
    log.drop_before(log.checkpoint().seq)
    (said,) = (each for each in verdict(log.folder) if "removed" in each)
    assert said == "record 15: removed: records 1 to 14 are missing, and no signed record says that they were pruned"


async def test_what_only_old_records_refer_to_goes_with_them(tmp_path: Path) -> None:
    log = await make_log(tmp_path / "log")
    await write(log, "kept", kept=b"still needed")
    assert len(list(log.attachments())) == 2
    await prune(log, Trail(log, who="me"), before=NEVER)
    assert [data for _, data in log.attachments()] == [b"still needed"]
    assert verdict(log.folder) == []


async def test_pruning_that_nobody_recorded_is_tampering(tmp_path: Path) -> None:
    log = await make_log(tmp_path / "log")
    log.drop_before(11)
    assert "no signed record says that they were pruned" in verdict(log.folder)[0]


async def test_the_record_of_pruning_cannot_be_borrowed(tmp_path: Path) -> None:
    """More was removed than the record says."""
    log = await make_log(tmp_path / "log")
    await prune(log, Trail(log, who="me"), before=NEVER)
    log.checkpoint()
    log.drop_before(17)
    assert "no signed record says that they were pruned" in verdict(log.folder)[0]


async def test_nothing_is_removed_without_an_old_checkpoint_or_a_place_for_the_archive(tmp_path: Path) -> None:
    log = await make_log(tmp_path / "log")
    trail = Trail(log, who="me")
    assert await prune(log, trail, before="2020-01-01T00:00:00.000000Z") == 0
    (tmp_path / "taken").touch()
    with pytest.raises(UsageError, match="exists already"):
        await prune(log, trail, before=NEVER, archive=tmp_path / "taken")
    with pytest.raises(UsageError, match="nothing was removed"):
        await prune(log, trail, before=NEVER, archive=tmp_path / "nowhere" / "archive")
    assert log.head().seq == 14
    assert check(log.folder, None).records == 14


async def test_what_is_found_meets_all_conditions(tmp_path: Path) -> None:
    log = await make_log(tmp_path / "log")
    await Trail(log, who="me").within(run="run_2", sandbox="box_2").write(RunBroke("OSError", '100% "true"_\\ \u00fc'))

    def texts(**wanted: object) -> list[int]:
        return [record.seq for record in log.find(Query(**wanted))]  # type: ignore[arg-type]

    assert texts(run_id="run_2") == texts(sandbox_id="box_2") == texts(kind="run") == texts(kind="run.broke") == [15]
    assert texts(kind="run.bro") == texts(kind="ru") == []
    assert texts(text='100% "true"_\\ \u00fc') == texts(text="oserror") == [15]
    assert texts(text="0%0") == texts(text="O_E") == []
    assert texts(text="t", newest_first=True, limit=2) == [15, 14]
    moment = next(log.find(Query(run_id="run_2"))).time
    assert texts(since=moment) == [15]
    assert 15 not in texts(until=moment)
    assert texts(after=13) == [14, 15]


@dataclass(frozen=True, slots=True)
class Finished(AuditEvent):
    kind = "run.finished"

    status: str
    cause: str


@dataclass(frozen=True, slots=True)
class Requested(AuditEvent):
    kind = "run.requested"

    language: str


async def test_runs_become_spans(tmp_path: Path) -> None:
    log = AuditLog.at(tmp_path / "log")
    trail = Trail(log, who="alice", tenant="acme").within(sandbox="box_1")
    await trail.within(run="run_1").write(Requested("python"), RunStarted(), Finished("success", "exit"))
    await trail.within(run="run_2").write(Requested("bash"), Finished("timeout", "wall_time"))
    await trail.within(run="run_3").write(Requested("bash"))
    exporter = InMemorySpanExporter()
    assert send(log.find(Query()), exporter) == 2
    first, second = exporter.get_finished_spans()
    assert first.name == "execute_tool python"
    assert first.attributes is not None
    assert first.attributes["gen_ai.operation.name"] == "execute_tool"
    assert first.attributes["gen_ai.tool.call.id"] == "run_1"
    assert first.attributes["fumehood.tenant"] == "acme"
    assert [event.name for event in first.events] == ["run.started"]
    assert (first.status.status_code, second.status.status_code) == (StatusCode.UNSET, StatusCode.ERROR)
    assert second.attributes is not None
    assert second.attributes["error.type"] == "wall_time"
    assert first.start_time is not None
    assert first.end_time is not None
    assert first.start_time <= first.end_time


async def test_the_columns_that_records_are_found_by_cannot_hide_one(tmp_path: Path) -> None:
    log = await make_log(tmp_path / "log")
    with editing(log.folder) as connection:
        connection.execute("UPDATE records SET run_id = NULL WHERE seq = 5")
    assert verdict(log.folder) == ["record 5: edited: the columns to find it by are not those of its text"]
