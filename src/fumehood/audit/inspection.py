"""A log or an export, opened to be read and verified; nothing is created and nothing is written.

A snapshot is the log's file at one moment: everything is read in one transaction, so that what others write meanwhile
is neither missed nor half seen, and from the tables themselves, since an index may lead elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path

from fumehood.audit import checkpoints, keys
from fumehood.audit.checkpoints import Checkpoint
from fumehood.audit.export import Export
from fumehood.audit.location import DATABASE, VARIABLE, find_folder
from fumehood.audit.records import EMPTY, Head, Record
from fumehood.audit.schema import deviations
from fumehood.audit.sqlite import Failing, SqliteStore, connect, read_head, read_record_row
from fumehood.audit.verification import Problem, Report, verify
from fumehood.errors import UsageError

_MOST_FAULTS = 20


class LogSnapshot:
    def __init__(self, path: Path) -> None:
        self.path = path
        with Failing(path, "opened"), ExitStack() as undo:
            self._connection = undo.enter_context(closing(connect(path, read_only=True)))
            self._connection.execute("PRAGMA cell_size_check = ON")
            self._connection.execute("BEGIN")
            undo.pop_all()

    def close(self) -> None:
        self._connection.close()

    def strange_schema(self) -> list[str]:
        """When this is not empty nothing else is worth reading: a changed schema decides what is read."""
        with Failing(self.path, "read"):
            return list(deviations(self._connection))

    def faults(self) -> Iterator[str]:
        """Where the file contradicts itself: pages, indexes that lack a row or have one too many, constraints."""
        with Failing(self.path, "read"):
            for (fault,) in self._connection.execute(f"PRAGMA integrity_check({_MOST_FAULTS})"):
                if fault != "ok":
                    yield f"it contradicts itself: {fault}"
            heads = self._connection.execute("SELECT count(*) FROM head").fetchone()[0]
            if heads != 1:
                yield f"it has {heads} notes of the log's end, and not one"

    def head(self) -> Head:
        with Failing(self.path, "read"):
            return read_head(self._connection) or EMPTY

    def records(self) -> Iterator[Record]:
        """All of them, also those that no reader shows."""
        with Failing(self.path, "read"):
            rows = self._connection.execute(
                "SELECT seq, hash, time, kind, run_id, sandbox_id, body FROM records NOT INDEXED ORDER BY seq"
            )
            yield from map(read_record_row, rows)

    def attachments(self) -> Iterator[tuple[str, bytes, int]]:
        """Digest, content, and the last record that refers to it."""
        with Failing(self.path, "read"):
            for digest, data, seq in self._connection.execute("SELECT sha256, data, last_seq FROM attachments"):
                content = data if isinstance(data, bytes) else b""
                yield str(digest), content, seq if isinstance(seq, int) else 0


_OWN_KEY = "checked with the key of your own log; an export of another log needs that one's key: --key"
_NO_KEY = (
    "there is no public key to check the signatures with: give that of the log's owner with --key FILE (`hood audit "
    "key` prints it). The key that the records name proves nothing, since anyone can write it there."
)
_NO_CHECKPOINT = (
    "no checkpoint lies beside the log: an older copy of it cannot be told from it; give one with --checkpoint"
)
_NOTHING_ELSE = "the records were not looked at: a changed schema decides what is read of them"


def open_store(place: Path | None) -> SqliteStore:
    """The store in this folder, by default the user's own."""
    return SqliteStore(_existing(place), read_only=True)


def check(
    place: Path | None, key: Path | None, kept: Iterable[Path] = (), witnessed: Iterable[Checkpoint] = ()
) -> Report:
    """Verify a log, or an export when `place` is a file of JSON lines. A checkpoint that lies beside counts as well."""
    witnesses = [*(_witness(path) for path in kept), *witnessed]
    if place is not None and place.exists() and not place.is_dir() and place.suffix != ".db":
        return _check_export(place, key, witnesses)
    return _check_log(_existing(place), key, witnesses)


def _witness(path: Path) -> Checkpoint:
    """A checkpoint that was kept; of an archive, the one that it ends with."""
    try:
        return checkpoints.read(path)
    except UsageError as error:
        with suppress(UsageError):
            found = [each for record in Export(path).records() if (each := checkpoints.of_record(record)) is not None]
            if found:
                return found[-1]
        raise error


def _check_export(place: Path, key: Path | None, witnesses: list[Checkpoint]) -> Report:
    public, notes = (keys.read_public(key), ()) if key else (_own_key(), (_OWN_KEY,))
    export = Export(place)
    attachments = ((digest, data, None) for digest, data in export.attachments())
    report = verify(export.records(), public, kept=witnesses, attachments=attachments)
    return replace(report, notes=(*notes, *report.notes))


def _check_log(path: Path, key: Path | None, witnesses: list[Checkpoint]) -> Report:
    beside = _checkpoint_beside(path)
    notes = () if beside or witnesses else (_NO_CHECKPOINT,)
    with closing(LogSnapshot(path)) as log:
        if strange := log.strange_schema():
            return Report(tuple(Problem(0, each) for each in strange), "", 0, 0, 0, 0, (_NOTHING_ELSE,))
        oldest = next(log.records(), None)
        if beside and oldest and beside.seq < oldest.seq and _checkpoint_beside(path) != beside:
            return _check_log(path, key, witnesses)  # pruned meanwhile
        report = verify(
            log.records(),
            keys.read_public(key) if key else _key_in(path.parent),
            kept=[*witnesses, *([beside] if beside else [])],
            attachments=log.attachments(),
            head=log.head(),
            faults=log.faults(),
        )
    return replace(report, notes=(*notes, *report.notes))


def _checkpoint_beside(path: Path) -> Checkpoint | None:
    """The checkpoint file beside a log. Read it before the log: then the log has every record that it signs."""
    beside = path.parent / checkpoints.FILE
    return checkpoints.read(beside) if beside.exists() else None


def _own_key() -> bytes:
    """The key of the verifier's own log."""
    folder = find_folder(os.environ)
    if folder is None:
        raise UsageError(_NO_KEY)
    return _key_in(folder)


def _key_in(folder: Path) -> bytes:
    if not (folder / keys.PUBLIC).exists():
        raise UsageError(_NO_KEY)
    return keys.read_public(folder / keys.PUBLIC)


def _existing(place: Path | None) -> Path:
    path = _database(place)
    if not path.exists():
        raise UsageError(
            f"there is no audit log in {path.parent}; the first sandbox makes one, or give its place: --log"
        )
    return path


def _database(place: Path | None) -> Path:
    folder = place or find_folder(os.environ)
    if folder is None:
        raise UsageError(f"the audit log is turned off ({VARIABLE}=off); give the place of one: --log")
    return folder if folder.suffix == ".db" else folder / DATABASE
