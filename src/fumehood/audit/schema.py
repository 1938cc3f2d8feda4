"""The tables that the log's file holds: how they are made, and whether they are still exactly those.

SQLite executes what a schema says: a trigger rewrites what is inserted, a view or an index shows other rows than were
written. So whatever is in a schema that we did not put there is named, not interpreted.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import suppress

FORMAT = 1
_APPLICATION = 0x46554D45  # "FUME", so that `file` and others can tell what it is
_SCHEMA = """
CREATE TABLE records (
    seq INTEGER PRIMARY KEY, hash BLOB NOT NULL, time TEXT NOT NULL, kind TEXT NOT NULL,
    run_id TEXT, sandbox_id TEXT, body TEXT NOT NULL);
CREATE INDEX records_of_runs ON records (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX records_of_sandboxes ON records (sandbox_id) WHERE sandbox_id IS NOT NULL;
CREATE TABLE head (
    one INTEGER PRIMARY KEY CHECK (one = 1), seq INTEGER NOT NULL, hash BLOB NOT NULL,
    checkpoint_seq INTEGER NOT NULL, checkpoint_time TEXT NOT NULL);
CREATE TABLE attachments (sha256 TEXT PRIMARY KEY, data BLOB NOT NULL, last_seq INTEGER NOT NULL) WITHOUT ROWID;
"""
_STATEMENTS = [statement.strip() for statement in _SCHEMA.split(";\n") if statement.strip()]
_MADE = re.compile(r"CREATE (TABLE|INDEX) (\w+)(?: ON (\w+))?")

# A row of SQLite's own table of contents: type, name, table, text.
_Object = tuple[object, object, object, object]


def make_tables(connection: sqlite3.Connection) -> None:
    """Creates the tables unless they exist."""
    if connection.execute("PRAGMA user_version").fetchone()[0]:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        if not connection.execute("PRAGMA user_version").fetchone()[0]:
            for statement in _STATEMENTS:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {_APPLICATION}")
            connection.execute(f"PRAGMA user_version = {FORMAT}")
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


def deviations(connection: sqlite3.Connection) -> Iterator[str]:
    """What is in the schema and is not ours, or is ours and not there."""
    found: set[_Object] = set(connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema"))
    ours = {_as_object(statement) for statement in _STATEMENTS}
    for kind, name, *_ in sorted(found - ours, key=repr):
        yield f"the {kind} {name!r} is not as Fumehood makes it"
    for kind, name, *_ in sorted(ours - found, key=repr):
        if (kind, name) not in {each[:2] for each in found}:
            yield f"the {kind} {name!r} is missing"
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if application != _APPLICATION:
        yield f"the file is marked as one of application {application}"


def _as_object(statement: str) -> _Object:
    made = _MADE.match(statement)
    assert made is not None, statement
    kind, name, table = made.groups()
    return kind.lower(), name, table or name, statement
