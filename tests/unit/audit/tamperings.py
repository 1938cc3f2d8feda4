"""What somebody may do to a log who has the file and not the key. Each is an entry of the table in docs/audit.md."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from unit.audit.logs import editing

from fumehood.audit.chain import GENESIS, link
from fumehood.audit.checkpoints import sign_checkpoint
from fumehood.audit.keys import SigningKey
from fumehood.audit.records import canonical, read_record

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
    previous = GENESIS
    for seq, body in enumerate(rows, 1):
        record = read_record(body, b"")
        body = canonical({**record.parse(), "seq": seq})
        previous = link(previous, body)
        connection.execute(
            "INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?)",
            (seq, previous, record.time, record.kind, record.run_id, record.sandbox_id, body),
        )
    connection.execute("UPDATE head SET seq = ?, hash = ?", (len(rows), previous))


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
    forged = sign_checkpoint(old.data["log"], 11, before, old.time, SigningKey(Ed25519PrivateKey.generate()))
    data = {**old.data, "hash": forged.hash, "key": forged.key, "signature": forged.signature}
    rows[11] = canonical({**old.parse(), "data": data})
    put(connection, list(rows.values()))


@tampering("edit an attachment")
def edit_attachment(connection: sqlite3.Connection) -> None:
    connection.execute("UPDATE attachments SET data = ?", (b"something else",))


@tampering("remove an attachment")
def remove_attachment(connection: sqlite3.Connection) -> None:
    connection.execute("DELETE FROM attachments")


def roll_back(folder: Path, older: Path) -> None:
    """An older copy in place of the whole folder: every byte in it was true once."""
    shutil.rmtree(folder)
    shutil.copytree(older, folder)
