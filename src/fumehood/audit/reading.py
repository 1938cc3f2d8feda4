"""A log or an export of one, opened to be read and checked; nothing is made and nothing is written."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fumehood.audit import checkpoints, keys
from fumehood.audit.chain import Head
from fumehood.audit.export import read_attachments, read_records
from fumehood.audit.location import DATABASE, VARIABLE, find_folder
from fumehood.audit.records import Record
from fumehood.audit.sqlite import SqliteStore
from fumehood.audit.store import Query
from fumehood.audit.verification import Report, verify
from fumehood.errors import UsageError

_NO_PROOF = "the key was taken from the log itself: it proves that one key signed all, not whose; give yours with --key"


def open_store(place: Path | None) -> SqliteStore:
    """The store in this folder, by default the user's own."""
    path = _database(place)
    if not path.exists():
        raise UsageError(
            f"there is no audit log in {path.parent}; the first sandbox makes one, or give its place: --log"
        )
    return SqliteStore(path, read_only=True)


def check(place: Path | None, key: Path | None, kept: Iterable[Path] = ()) -> Report:
    """Verify a log, or an export when `place` is a file of JSON lines. A checkpoint that lies beside counts as well."""
    subject = _subject(place)
    public, notes = (keys.read_public(key), ()) if key else _own_key(subject)
    witnesses = [checkpoints.read(path) for path in kept]
    beside = subject.folder / checkpoints.FILE
    if subject.is_whole and beside.exists():
        witnesses.append(checkpoints.read(beside))
    report = verify(subject.records(), public, kept=witnesses, attachments=subject.attachments(), head=subject.head)
    return Report(
        report.problems, report.log, report.first, report.last, report.records, report.signed, (*notes, *report.notes)
    )


@dataclass(frozen=True, slots=True)
class _Subject:
    folder: Path
    records: Callable[[], Iterator[Record]]
    attachments: Callable[[], Iterator[tuple[str, bytes]]]
    head: Head | None
    is_whole: bool


def _subject(place: Path | None) -> _Subject:
    if place is not None and place.is_file() and place.suffix != ".db":
        return _Subject(
            place.parent, lambda: read_records(place), lambda: read_attachments(place), None, is_whole=False
        )
    store = open_store(place)
    # The head first: what is written while we read is not missed.
    head = store.head()
    return _Subject(
        store.path.parent,
        lambda: (record for record in store.find(Query()) if record.seq <= head.seq),
        store.attachments,
        head,
        is_whole=True,
    )


def _own_key(subject: _Subject) -> tuple[bytes, tuple[str, ...]]:
    beside = subject.folder / keys.PUBLIC
    if subject.is_whole and beside.exists():
        return keys.read_public(beside), ()
    for record in subject.records():
        key = record.data.get("key")
        if isinstance(key, str) and len(key) == 64:
            return bytes.fromhex(key), (_NO_PROOF,)
        break
    raise UsageError("there is no key to check signatures with; give the public key with --key FILE")


def _database(place: Path | None) -> Path:
    folder = place or find_folder(os.environ)
    if folder is None:
        raise UsageError(f"the audit log is turned off ({VARIABLE}=off); give the place of one: --log")
    return folder if folder.suffix == ".db" else folder / DATABASE
