"""Records that leave the log: exports, archives and what is pruned, spans; and what can still be proved then."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from unit.audit.logs import editing, make_log, problems, verdict, write
from unit.audit.tamperings import TAMPERINGS

from fumehood.audit import AuditEvent, AuditLog, Digest, Query, Trail
from fumehood.audit.checkpoints import as_entry, sign_checkpoint
from fumehood.audit.events import RunBroke, RunStarted
from fumehood.audit.export import Export, lines
from fumehood.audit.inspection import check
from fumehood.audit.keys import SigningKey, public_pem
from fumehood.audit.records import EMPTY, Entry, Head, follow, timestamp
from fumehood.audit.retention import prune
from fumehood.audit.spans import send
from fumehood.errors import UsageError

pytestmark = pytest.mark.anyio

NEVER = "9999-01-01T00:00:00.000000Z"


async def signed_log(folder: Path) -> AuditLog:
    """Record 15 is a checkpoint and the last one."""
    log = await make_log(folder)
    log.checkpoint()
    return log


async def test_an_export_verifies_like_the_log(tmp_path: Path) -> None:
    log, export = await signed_log(tmp_path / "log"), tmp_path / "export.jsonl"
    export.write_text("".join(lines(log.find(Query()), log.attachment)))
    report = check(export, log.folder / "key.pub")
    assert (report.ok, report.last, report.signed) == (True, 15, 15)
    assert list(Export(export).records()) == list(log.find(Query()))


def invented(key: SigningKey, *, is_signed: bool) -> str:
    """An export that fits together, of a log that never was."""
    created = Entry(timestamp(0), "log.created", "root", None, {}, {"log": "log_1", "key": key.public.hex()})
    records = follow(EMPTY, [created, Entry(timestamp(0), "run.finished", "root", None, {}, {"status": "success"})])
    if is_signed:
        checkpoint = sign_checkpoint("log_1", 3, records[-1].hash, timestamp(0), "root", key)
        records += follow(Head(2, records[-1].hash, 0, ""), [as_entry(checkpoint)])
    return "".join(lines(records, lambda digest: None))


async def test_an_export_without_a_signature_does_not_verify(tmp_path: Path) -> None:
    log, export = await make_log(tmp_path / "log"), tmp_path / "export.jsonl"
    key = SigningKey(Ed25519PrivateKey.generate())
    (tmp_path / "key.pub").write_bytes(public_pem(key.public))
    export.write_text(invented(key, is_signed=False))
    for public in (log.folder / "key.pub", tmp_path / "key.pub"):
        (said,) = problems(check(export, public))
        assert said.startswith("record 1: not signed: no checkpoint signed with the key covers records 1 to 2")
    export.write_text(invented(key, is_signed=True))
    assert check(export, tmp_path / "key.pub").ok


async def test_the_key_that_an_export_names_proves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The verifier's own key counts, or one that was given."""
    export = tmp_path / "export.jsonl"
    export.write_text(invented(SigningKey(Ed25519PrivateKey.generate()), is_signed=True))
    monkeypatch.setenv("FUMEHOOD_AUDIT", str(tmp_path / "log"))
    with pytest.raises(UsageError, match=r"no public key to check the signatures with.*--key"):
        check(export, None)
    log = await signed_log(tmp_path / "log")
    report = check(export, None)
    assert problems(report)[-1] == "record 3: forged: this checkpoint is not signed with the key"
    assert report.notes[0].startswith("checked with the key of your own log")
    export.write_text("".join(lines(log.find(Query()), log.attachment)))
    assert check(export, None).ok


async def test_records_behind_the_last_checkpoint_of_an_export_are_reported(tmp_path: Path) -> None:
    log, export = await make_log(tmp_path / "log"), tmp_path / "export.jsonl"
    export.write_text("".join(lines(log.find(Query()), log.attachment)))
    (said,) = problems(check(export, log.folder / "key.pub"))
    assert said.startswith("record 12: not signed: no checkpoint signed with the key covers records 12 to 14")


async def test_a_log_without_a_signature_does_not_verify(tmp_path: Path) -> None:
    log = AuditLog.at(tmp_path / "log")
    with editing(log.folder) as connection:
        connection.execute("DELETE FROM records WHERE seq = 2")
        (digest,) = connection.execute("SELECT hash FROM records").fetchone()
        connection.execute("UPDATE head SET seq = 1, hash = ?, checkpoint_seq = 0, checkpoint_time = ''", (digest,))
    (log.folder / "checkpoint.json").unlink()
    (said,) = verdict(log.folder)
    assert said.startswith("record 1: not signed: no checkpoint signed with the key covers record 1")


async def test_the_key_that_a_log_names_proves_nothing(tmp_path: Path) -> None:
    log = await make_log(tmp_path / "log")
    (log.folder / "key.pub").rename(tmp_path / "kept.pub")
    with pytest.raises(UsageError, match=r"no public key to check the signatures with.*--key"):
        check(log.folder, None)
    assert check(log.folder, tmp_path / "kept.pub").ok


async def test_an_export_that_is_cut_off_is_noticed(tmp_path: Path) -> None:
    """But right behind a checkpoint, with what is attached, where only one that was kept elsewhere tells."""
    log, export = await signed_log(tmp_path / "log"), tmp_path / "export.jsonl"
    whole = list(lines(log.find(Query()), log.attachment))
    for count in range(len(whole)):
        export.write_text("".join(whole[:count]))
        assert check(export, log.folder / "key.pub").ok == (count == 2), count
    export.write_text("".join([*whole[:11], whole[-1]]))
    assert check(export, log.folder / "key.pub").ok
    (said,) = problems(check(export, log.folder / "key.pub", [log.folder / "checkpoint.json"]))
    assert said.startswith("record 15: rolled back, or cut off")


async def test_an_export_has_one_order_and_one_encoding(tmp_path: Path) -> None:
    log, export = await signed_log(tmp_path / "log"), tmp_path / "export.jsonl"
    *rows, attachment = lines(log.find(Query()), log.attachment)
    for data in (
        "".join([attachment, *rows]).encode(),
        "".join([*rows[:5], attachment, *rows[5:]]).encode(),
        "".join([*rows, attachment, rows[-1]]).encode(),
        "".join([*rows, attachment]).encode("utf-16"),
        "".join([*rows, attachment]).encode("utf-8-sig"),
        "".join([*rows, attachment, "\n"]).encode(),
        "".join([*rows, attachment]).replace("tester", "t\u00e9ster").encode("latin-1"),
    ):
        export.write_bytes(data)
        with pytest.raises(UsageError, match=r"not a line of an export|cannot be read as an export|all records first"):
            check(export, log.folder / "key.pub")


async def test_an_export_is_read_once(tmp_path: Path) -> None:
    """So it may come through a pipe, and cannot be another one when it is read again."""
    log, pipe = await signed_log(tmp_path / "log"), tmp_path / "pipe"
    os.mkfifo(pipe)
    whole = "".join(lines(log.find(Query()), log.attachment))
    writer = threading.Thread(target=pipe.write_text, args=(whole,))
    writer.start()
    assert check(pipe, log.folder / "key.pub").ok
    writer.join()


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
@pytest.mark.parametrize("place", [0, 2, 15])
async def test_an_export_with_a_record_outside_of_the_log_does_not(tmp_path: Path, seq: int, place: int) -> None:
    log, export = await signed_log(tmp_path / "log"), tmp_path / "export.jsonl"
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
    assert {"first": 11, "records": 10, "archive": str(archive)}.items() <= told.data.items()
    first = next(log.find(Query(after=10)))
    assert (told.data["log"], told.data["first_hash"]) == (first.data["log"], first.hash.hex())
    assert told.data["hash"] == next(log.find(Query(after=13))).hash.hex()
    assert verdict(log.folder) == []
    old = check(archive, log.folder / "key.pub")
    assert (old.ok, old.first, old.last, old.signed) == (True, 1, 11, 11)
    assert list(Export(archive).attachments()) == [(Digest.of(b"attached to five").sha256, b"attached to five")]
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


async def test_an_export_without_its_beginning_needs_the_signed_record_of_a_pruning(tmp_path: Path) -> None:
    log, export = await make_log(tmp_path / "log"), tmp_path / "export.jsonl"
    TAMPERINGS["the same, and the next checkpoint signs it"](log.folder)
    export.write_text("".join(lines(log.find(Query()), log.attachment)))
    gone = "record 11: removed: records 1 to 10 are missing, and no signed record says that they were pruned"
    assert problems(check(export, log.folder / "key.pub")) == [
        f"{gone}; of an archive that follows another one, give that one with --checkpoint",
        "record 15: forged: this record of a pruning is not signed with the key",
    ]


async def test_an_export_of_a_pruned_log_verifies_on_its_own(tmp_path: Path) -> None:
    log, export = await make_log(tmp_path / "log"), tmp_path / "export.jsonl"
    await prune(log, Trail(log, who="me"), before=NEVER)
    export.write_text("".join(lines(log.find(Query()), log.attachment)))
    report = check(export, log.folder / "key.pub")
    assert (problems(report), report.first, report.last) == ([], 11, 16)


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
