"""What somebody may do to a log who has the file and not the key. Each is an entry of the table in docs/audit.md."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from unit.audit.logs import editing

from fumehood.audit.checkpoints import KIND, as_entry, keep, of_record, sign_checkpoint
from fumehood.audit.keys import SigningKey, load_key
from fumehood.audit.prunings import sign_pruning
from fumehood.audit.records import GENESIS, Entry, Head, Record, canonical, link, read_record, timestamp

Tampering = Callable[[Path], None]
TAMPERINGS: dict[str, Tampering] = {}


def tampering(name: str) -> Callable[[Callable[[sqlite3.Connection], None]], Tampering]:
    def register(change: Callable[[sqlite3.Connection], None]) -> Tampering:
        def tamper(folder: Path) -> None:
            with editing(folder) as connection:
                change(connection)

        TAMPERINGS[name] = tamper
        return tamper

    return register


def bodies(connection: sqlite3.Connection) -> dict[int, str]:
    return dict(connection.execute("SELECT seq, body FROM records ORDER BY seq"))


def put(connection: sqlite3.Connection, rows: list[str]) -> None:
    """Write all records anew, with numbers and hashes that fit, and the note of the end: all that needs no key."""
    connection.execute("DELETE FROM records")
    previous, newest = GENESIS, (0, "")
    for seq, body in enumerate(rows, 1):
        record = read_record(body, b"")
        body = canonical({**record.parse(), "seq": seq})
        previous = link(previous, body)
        newest = (seq, record.time) if record.kind == KIND else newest
        connection.execute(
            "INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?)",
            (seq, previous, record.time, record.kind, record.run_id, record.sandbox_id, body),
        )
    note = (len(rows), previous, *newest)
    connection.execute("UPDATE head SET seq = ?, hash = ?, checkpoint_seq = ?, checkpoint_time = ?", note)


@tampering("edit a record")
def edit(connection: sqlite3.Connection) -> None:
    connection.execute("UPDATE records SET body = replace(body, 'five', 'FIVE') WHERE seq = 5")


@tampering("edit a record and its hash")
def edit_with_hash(connection: sqlite3.Connection) -> None:
    body = bodies(connection)[5].replace("five", "FIVE")
    (before,) = connection.execute("SELECT hash FROM records WHERE seq = 4").fetchone()
    connection.execute("UPDATE records SET body = ?, hash = ? WHERE seq = 5", (body, link(before, body)))


@tampering("edit a record and every hash after it")
def edit_with_hashes(connection: sqlite3.Connection) -> None:
    rows = bodies(connection)
    rows[5] = rows[5].replace("five", "FIVE")
    put(connection, list(rows.values()))


@tampering("edit what a record is found by")
def edit_column(connection: sqlite3.Connection) -> None:
    connection.execute("UPDATE records SET run_id = 'run_2' WHERE seq = 5")


@tampering("remove a record")
def remove(connection: sqlite3.Connection) -> None:
    connection.execute("DELETE FROM records WHERE seq = 5")


@tampering("remove three records")
def remove_three(connection: sqlite3.Connection) -> None:
    connection.execute("DELETE FROM records WHERE seq BETWEEN 5 AND 7")


@tampering("remove a record, and number and hash the rest anew")
def remove_and_renumber(connection: sqlite3.Connection) -> None:
    rows = bodies(connection)
    del rows[6]
    put(connection, list(rows.values()))


@tampering("remove the beginning")
def remove_beginning(connection: sqlite3.Connection) -> None:
    remove_beginning_of(connection)


def remove_beginning_of(connection: sqlite3.Connection) -> None:
    connection.execute("DELETE FROM records WHERE seq < 11")
    connection.execute("DELETE FROM attachments")


@tampering("swap two records")
def swap(connection: sqlite3.Connection) -> None:
    rows = bodies(connection)
    for here, there in ((6, 7), (7, 6)):
        connection.execute("UPDATE records SET body = ? WHERE seq = ?", (rows[there], here))


@tampering("swap two records, and number and hash the rest anew")
def swap_and_renumber(connection: sqlite3.Connection) -> None:
    rows = bodies(connection)
    rows[6], rows[7] = rows[7], rows[6]
    put(connection, list(rows.values()))


@tampering("insert a record, and number and hash the rest anew")
def insert(connection: sqlite3.Connection) -> None:
    rows = list(bodies(connection).values())
    put(connection, [*rows[:6], rows[5].replace("six", "false"), *rows[6:]])


@tampering("cut off the end")
def cut_off(connection: sqlite3.Connection) -> None:
    connection.execute("DELETE FROM records WHERE seq > 12")


@tampering("cut off the end with a checkpoint, and the note of the end")
def cut_off_checkpoint(connection: sqlite3.Connection) -> None:
    put(connection, list(bodies(connection).values())[:10])


@tampering("cut off what is not signed yet, and the note of the end")
def cut_off_unsigned(connection: sqlite3.Connection) -> None:
    put(connection, list(bodies(connection).values())[:12])


@tampering("sign a checkpoint with another key")
def forge(connection: sqlite3.Connection) -> None:
    rows = bodies(connection)
    rows[5] = rows[5].replace("five", "FIVE")
    put(connection, list(rows.values()))
    (before,) = connection.execute("SELECT hash FROM records WHERE seq = 10").fetchone()
    old = read_record(rows[11], b"")
    forged = sign_checkpoint(old.data["log"], 11, before, old.time, "root", SigningKey(Ed25519PrivateKey.generate()))
    data = {**old.data, "hash": forged.hash, "key": forged.key, "signature": forged.signature}
    rows[11] = canonical({**old.parse(), "data": data})
    put(connection, list(rows.values()))


@tampering("write into the newest checkpoint, and hash the rest anew")
def write_into_checkpoint(connection: sqlite3.Connection) -> None:
    rows = bodies(connection)
    fields = read_record(rows[11], b"").parse()
    data = {**fields["data"], "status": "approved"}
    rows[11] = canonical({**fields, "ids": {"run": "run_1"}, "data": data})
    put(connection, list(rows.values()))


@tampering("name another user in the newest checkpoint, and hash the rest anew")
def rename_signer(connection: sqlite3.Connection) -> None:
    rows = bodies(connection)
    rows[11] = canonical({**read_record(rows[11], b"").parse(), "who": "mallory"})
    put(connection, list(rows.values()))


@tampering("spell the newest checkpoint's signature otherwise, and hash the rest anew")
def respell_signature(connection: sqlite3.Connection) -> None:
    rows = bodies(connection)
    fields = read_record(rows[11], b"").parse()
    rows[11] = canonical({**fields, "data": {**fields["data"], "signature": fields["data"]["signature"].upper()}})
    put(connection, list(rows.values()))


@tampering("write all anew behind record 2, and put that checkpoint beside the log")
def forge_few(connection: sqlite3.Connection) -> None:
    forge_behind_first_checkpoint(connection, 9, seconds=1)


@tampering("the same with 1,100 records")
def forge_many(connection: sqlite3.Connection) -> None:
    forge_behind_first_checkpoint(connection, 1100, seconds=1)


@tampering("the same with records of nine hours")
def forge_hours(connection: sqlite3.Connection) -> None:
    forge_behind_first_checkpoint(connection, 9, seconds=3600)


def forge_behind_first_checkpoint(connection: sqlite3.Connection, count: int, *, seconds: int) -> None:
    rows = list(bodies(connection).values())[:2]
    checkpoint = of_record(read_record(rows[1], b""))
    assert checkpoint is not None
    start = datetime.fromisoformat(checkpoint.time).timestamp()
    forged = {"v": 1, "kind": "run.finished", "who": "root", "ids": {"run": "run_1"}, "data": {"status": "success"}}
    rows += [canonical({**forged, "seq": 0, "time": timestamp(start + n * seconds)}) for n in range(1, count + 1)]
    put(connection, rows)
    connection.execute("DELETE FROM attachments")
    keep(checkpoint, folder_of(connection))


@tampering("edit an attachment")
def edit_attachment(connection: sqlite3.Connection) -> None:
    connection.execute("UPDATE attachments SET data = ?", (b"something else",))


@tampering("remove an attachment")
def remove_attachment(connection: sqlite3.Connection) -> None:
    connection.execute("DELETE FROM attachments")


@tampering("edit the note of what an attachment belongs to")
def edit_attachment_note(connection: sqlite3.Connection) -> None:
    connection.execute("UPDATE attachments SET last_seq = 4")


@tampering("remove the beginning, and add a record that says it was pruned")
def pretend_pruning(connection: sqlite3.Connection) -> None:
    remove_beginning_of(connection)
    append(connection, {"kind": "log.pruned", "who": "root", "data": {"first": 11, "records": 10}})


@tampering("the same, and the next checkpoint signs it")
def pretend_signed_pruning(connection: sqlite3.Connection) -> None:
    """As a writer does that looks at nothing but the end of the log."""
    remove_beginning_of(connection)
    append(connection, {"kind": "log.pruned", "who": "root", "data": {"first": 11, "records": 10}})
    sign_end(connection)


@tampering("the same with a signature of another key")
def sign_pruning_with_another_key(connection: sqlite3.Connection) -> None:
    folder, first, head = folder_of(connection), record_at(connection, 11), record_at(connection, 14)
    entry = Entry(head.time, "log.pruned", "root", None, {}, {"first": 11, "records": 10})
    end = Head(head.seq, head.hash, 11, first.time)
    forged = sign_pruning(entry, first.data["log"], first, end, SigningKey(Ed25519PrivateKey.generate()))
    own = {**forged.data, "key": load_key(folder).public.hex()}
    remove_beginning_of(connection)
    append(connection, {"kind": "log.pruned", "who": "root", "data": own})
    sign_end(connection)


@tampering("insert records behind the end")
def insert_behind(connection: sqlite3.Connection) -> None:
    for seq in (20, 21):
        connection.execute(
            f"INSERT INTO records SELECT {seq}, hash, time, kind, 'run_9', NULL, body FROM records LIMIT 1"
        )


@tampering("insert a record before the first")
def insert_before(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO records SELECT -1, hash, time, kind, run_id, sandbox_id, body FROM records LIMIT 1")


@tampering("edit the note of the newest checkpoint")
def edit_checkpoint_note(connection: sqlite3.Connection) -> None:
    connection.execute("UPDATE head SET checkpoint_seq = 13")


@tampering("write the note of the end a second time")
def second_head(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA ignore_check_constraints = ON")
    connection.execute("INSERT INTO head SELECT 2, seq, hash, checkpoint_seq, checkpoint_time FROM head")


@tampering("name another key in a checkpoint, and hash the rest anew")
def rename_key(connection: sqlite3.Connection) -> None:
    rows = bodies(connection)
    fields = read_record(rows[11], b"").parse()
    rows[11] = canonical({**fields, "data": {**fields["data"], "key": "0" * 64}})
    put(connection, list(rows.values()))


@tampering("empty the log")
def empty(connection: sqlite3.Connection) -> None:
    for table in ("records", "head", "attachments"):
        connection.execute(f"DELETE FROM {table}")


@tampering("take a record out of an index")
def thin_index(connection: sqlite3.Connection) -> None:
    """With another index in its place, which is then called by the old one's text."""
    redefine(connection, "WHERE run_id IS NOT NULL", "WHERE run_id IS NOT NULL AND seq != 5", reindex=True)
    redefine(connection, " AND seq != 5", "")


@tampering("change an index")
def change_index(connection: sqlite3.Connection) -> None:
    redefine(connection, "WHERE run_id IS NOT NULL", "WHERE run_id IS NOT NULL AND seq != 5", reindex=True)


@tampering("add a trigger")
def add_trigger(connection: sqlite3.Connection) -> None:
    connection.execute(
        "CREATE TRIGGER helpful AFTER INSERT ON records BEGIN DELETE FROM records WHERE seq = NEW.seq; END"
    )


@tampering("put a view in place of the records")
def put_view(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE records RENAME TO others")
    connection.execute("CREATE VIEW records AS SELECT * FROM others WHERE seq != 5")


@tampering("add a generated column")
def add_column(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE records ADD COLUMN more TEXT AS (kind) VIRTUAL")


@tampering("sort text otherwise")
def change_collation(connection: sqlite3.Connection) -> None:
    redefine(connection, "sha256 TEXT PRIMARY KEY", "sha256 TEXT COLLATE NOCASE PRIMARY KEY")


def redefine(connection: sqlite3.Connection, old: str, new: str, *, reindex: bool = False) -> None:
    """Change the schema's own text."""
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute("UPDATE sqlite_schema SET sql = replace(sql, ?, ?)", (old, new))
    (version,) = connection.execute("PRAGMA schema_version").fetchone()
    connection.execute(f"PRAGMA schema_version = {version + 1}")  # so that it is read anew
    if reindex:
        connection.execute("REINDEX")


@tampering("add a record in another spelling, and the next checkpoint signs it")
def add_in_another_spelling(connection: sqlite3.Connection) -> None:
    append(
        connection,
        {"kind": "ticket.note", "who": "root", "data": {"a": 1}},
        lambda body: body.replace('"a":1', '"a": 1'),
    )
    sign_end(connection)


@tampering("add a record with a number that JSON does not have, and the next checkpoint signs it")
def add_endless_number(connection: sqlite3.Connection) -> None:
    append(
        connection,
        {"kind": "ticket.note", "who": "root", "data": {"a": 1}},
        lambda body: body.replace('"a":1', '"a":NaN'),
    )
    sign_end(connection)


def append(
    connection: sqlite3.Connection, fields: dict[str, object], spell: Callable[[str], str] = lambda body: body
) -> None:
    """A record as the log would write it, or in another spelling, with all that needs no key."""
    seq, previous, time = connection.execute("SELECT seq, hash, time FROM records ORDER BY seq DESC").fetchone()
    body = canonical({"v": 1, "seq": seq + 1, "time": time, **fields})
    record = read_record(body, b"")._replace(body=spell(body), hash=link(previous, spell(body)))
    connection.execute("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?)", record)
    connection.execute("UPDATE head SET seq = ?, hash = ?", (record.seq, record.hash))


def sign_end(connection: sqlite3.Connection) -> None:
    """What the log's owner does from time to time."""
    seq, previous = connection.execute("SELECT seq, hash FROM head").fetchone()
    folder, time = folder_of(connection), record_at(connection, seq).time
    log = record_at(connection, 11).data["log"]
    checkpoint = sign_checkpoint(log, seq + 1, previous, time, "owner", load_key(folder))
    entry = as_entry(checkpoint)
    append(connection, {"kind": entry.kind, "who": entry.who, "data": entry.data})
    connection.execute("UPDATE head SET checkpoint_seq = ?, checkpoint_time = ?", (checkpoint.seq, time))
    keep(checkpoint, folder)


def record_at(connection: sqlite3.Connection, seq: int) -> Record:
    return Record(*connection.execute("SELECT * FROM records WHERE seq = ?", (seq,)).fetchone())


def folder_of(connection: sqlite3.Connection) -> Path:
    (path,) = (path for _, name, path in connection.execute("PRAGMA database_list") if name == "main")
    return Path(path).parent


def roll_back(folder: Path, older: Path) -> None:
    """An older copy in place of the whole folder: every byte in it was true once."""
    shutil.rmtree(folder)
    shutil.copytree(older, folder)
