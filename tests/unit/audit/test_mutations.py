"""Any change to the file is reported, or no reader shows anything else because of it: rows, schema, single bytes.

What is changed is chosen at random, with seeds, so that a failure can be repeated.
"""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import product
from pathlib import Path

import pytest
import sampling
from unit.audit.logs import make_log, write

from fumehood.audit import AuditLog, Query, Trail
from fumehood.audit.inspection import check, open_store
from fumehood.audit.retention import prune
from fumehood.errors import AuditError

pytestmark = pytest.mark.anyio

PAGE = 4096
TABLES = {
    "records": ("seq", "hash", "time", "kind", "run_id", "sandbox_id", "body"),
    "head": ("one", "seq", "hash", "checkpoint_seq", "checkpoint_time"),
    "attachments": ("sha256", "data", "last_seq"),
}
VALUES = (None, -1, 0, 5, 2**40, 1.5, "", "run_1", "box_2", "2030-01-01T00:00:00.000000Z", b"", b"\xff" * 32, "a\x00b")
QUERIES = (
    Query(),
    Query(run_id="run_1"),
    Query(sandbox_id="box_1"),
    Query(kind="test"),
    Query(text="five"),
    Query(after=4),
    Query(until="2029-01-01T00:00:00.000000Z"),
    Query(newest_first=True, limit=3),
)


async def make_whole(folder: Path) -> None:
    """Signed to the end, pruned once, and with more than one page of records."""
    log = await make_log(folder)
    await prune(log, Trail(log, who="me"), before="9999-01-01T00:00:00.000000Z")
    await write(log, "x" * 3000, "y", kept=b"attached" * 700)
    await write(log, *map(str, range(30)))
    log.checkpoint()


def shown(folder: Path) -> object:
    """All that readers can get out of it."""
    try:
        with closing(open_store(folder)) as store:
            found = [list(store.find(query)) for query in QUERIES]
            attached = [store.attachment(digest) for record in found[0] for digest in record.stored]
            return found, attached
    except AuditError as error:
        return str(error)


def is_reported(folder: Path) -> bool:
    try:
        return not check(folder, None).ok
    except AuditError:
        return True


@pytest.fixture
async def original(tmp_path: Path) -> Path:
    """Nothing is in the WAL."""
    await make_whole(tmp_path / "original")
    AuditLog.at(tmp_path / "original").close()
    assert not (tmp_path / "original" / "audit.db-wal").exists()
    return tmp_path / "original"


def copied(original: Path, to: Path) -> Path:
    shutil.rmtree(to, ignore_errors=True)
    return shutil.copytree(original, to, ignore=shutil.ignore_patterns("*-shm"))


Statement = tuple[str, tuple[object, ...]]


def row_changes(folder: Path, dice: random.Random) -> Iterator[Statement]:
    """Each column of each table, in some row: any value in it, a row too many, a row too few."""
    for (table, (key, *rest)), rows in zip(TABLES.items(), dump(folder), strict=True):
        keys = [row[0] for row in rows]
        for column, value in product((key, *rest), VALUES):
            yield f"UPDATE {table} SET {column} = ? WHERE {key} = ?", (value, dice.choice(keys))
        for where in dice.sample(keys, min(3, len(keys))):
            yield f"DELETE FROM {table} WHERE {key} = ?", (where,)
            for other in (-3, 0, 1, 7, 10_000):
                yield f"INSERT INTO {table} SELECT ?, {', '.join(rest)} FROM {table} WHERE {key} = ?", (other, where)


def dump(folder: Path) -> list[list[tuple[object, ...]]]:
    with closing(sqlite3.connect(folder / "audit.db")) as connection:
        return [connection.execute(f"SELECT * FROM {table}").fetchall() for table in TABLES]


async def test_any_other_row_in_any_table_is_reported(original: Path, tmp_path: Path) -> None:
    assert not is_reported(original)
    before, tried = dump(original), 0
    for statement, values in row_changes(original, random.Random(1)):
        folder = copied(original, tmp_path / "copy")
        with closing(sqlite3.connect(folder / "audit.db", isolation_level=None)) as connection:
            connection.execute("PRAGMA ignore_check_constraints = ON")
            # What SQLite itself refuses is no attack.
            with suppress(sqlite3.Error):
                connection.execute(statement, values)
        if repr(dump(folder)) != repr(before):
            tried += 1
            assert is_reported(folder), (statement, values)
    assert tried > 100


@pytest.mark.parametrize("seed", range(4))
async def test_any_other_byte_is_reported_or_makes_no_difference(seed: int, original: Path, tmp_path: Path) -> None:
    before, dice = shown(original), random.Random(seed)
    outcomes = [
        is_reported(folder) or shown(folder) == before
        for _ in range(sampling.amount(50, whole=150))
        if (folder := mutated(copied(original, tmp_path / "copy") / "audit.db", dice))
    ]
    assert all(outcomes), f"seed {seed}, change {outcomes.index(False)}"


@pytest.mark.parametrize("seed", range(2))
async def test_any_other_byte_of_the_wal_is_reported_or_makes_no_difference(seed: int, tmp_path: Path) -> None:
    await make_whole(tmp_path / "original")
    original = copied(tmp_path / "original", tmp_path / "as left by a crash")
    assert (original / "audit.db-wal").stat().st_size
    before, dice = shown(copied(original, tmp_path / "copy")), random.Random(seed)
    for number in range(sampling.amount(40, whole=100)):
        folder = mutated(copied(original, tmp_path / "copy") / "audit.db-wal", dice)
        assert is_reported(folder) or shown(folder) == before, f"seed {seed}, change {number}"


def mutated(file: Path, dice: random.Random) -> Path:
    """Some bytes others, zero, exchanged, or gone from the end. The folder."""
    data = bytearray(file.read_bytes())
    place, size = dice.randrange(len(data)), dice.choice((1, 1, 1, 4, 32))
    page, other_page = place // PAGE * PAGE, dice.randrange(len(data)) // PAGE * PAGE
    match dice.randrange(8):
        case 0:
            data[place] ^= 1 << dice.randrange(8)
        case 1:
            data[place : place + size] = dice.randbytes(len(data[place : place + size]))
        case 2:
            data[place : place + size] = bytes(len(data[place : place + size]))
        case 3:
            other = dice.randrange(len(data))
            data[place : place + size] = data[other : other + len(data[place : place + size])]
        case 4:
            del data[place:]
        case 5:
            data[page : page + PAGE] = data[other_page : other_page + PAGE]
        case _:  # the headers of the file and its pages, where a byte means most
            data[min(page + dice.randrange(100), len(data) - 1)] = dice.randrange(256)
    file.write_bytes(data)
    return file.parent
