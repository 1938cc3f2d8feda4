"""The log: appends entries to the store as records of one chain, and signs checkpoints from time to time."""

from __future__ import annotations

import os
import pwd
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cache
from pathlib import Path

from fumehood.audit import checkpoints, keys, prunings
from fumehood.audit.checkpoints import EVERY_RECORDS, EVERY_SECONDS, Checkpoint
from fumehood.audit.location import DATABASE, FOLDER, find_folder
from fumehood.audit.records import CREATED, Entry, Head, Record, follow, timestamp
from fumehood.audit.sqlite import SqliteStore, changed_by_others
from fumehood.audit.store import BusyError, Query, Store, patiently
from fumehood.concurrency.process import ProcessKey, process_key
from fumehood.errors import AuditError, UsageError

# How many records may be in the store before its maintenance. A process of few records does it with its first
# checkpoint, since no process knows what others have left to do.
_SETTLE_RECORDS = 4 * EVERY_RECORDS
_MOST_DEFERRED = 64


class AuditLog:
    """`AuditLog.at(folder)`, or `AuditLog.default()`: one for each folder and process."""

    def __init__(self, store: Store, folder: Path, path: Path) -> None:
        self.folder, self.path = folder, path
        self._store = store
        self._key: keys.SigningKey | None = None
        self._signing, self._keeping, self._appending = threading.Lock(), threading.Lock(), threading.Lock()
        self._deferred: list[Entry] = []
        # Below every number: the first checkpoint that is kept also settles what other processes have left to do.
        self._last_seq, self._kept_seq = 0, -1
        # The newest checkpoint that we know of, and when it was made: by the clock of the records, which goes on while
        # the machine sleeps and can be set.
        self._checkpoint_seq, self._checkpoint_moment = -EVERY_RECORDS, 0.0
        self._announced: Record | None = None
        """The first record of a pruned log, of which we have seen that a signed record announces it."""

    @classmethod
    def at(cls, folder: str | os.PathLike[str]) -> AuditLog:
        """The log in this folder, made if there is none. It stays open until it is closed, or the process ends."""
        return _opened(process_key(), os.path.abspath(folder))

    @classmethod
    def default(cls) -> AuditLog | None:
        """The log that FUMEHOOD_AUDIT names, else the user's own; None where it says `off`."""
        folder = find_folder(os.environ)
        return None if folder is None else cls.at(folder)

    def close(self) -> None:
        """Closes the log, for applications with many logs; `at` opens it anew."""
        _logs.pop((process_key(), str(self.folder)), None)
        self.let_go()

    def is_replaced(self) -> bool:
        return self._store.is_replaced()

    def let_go(self) -> None:
        with suppress(AuditError, BusyError):
            self.append(())
        self._store.close()

    def append(self, entries: Sequence[Entry]) -> None:
        """All of them or none, after what was deferred. Survives the death of this process; `sync` makes it survive a
        loss of power."""
        with self._appending:
            together = [*self._deferred, *entries]
            if together:
                self._last_seq = self._extend(together)
                self._deferred.clear()

    def defer(self, entries: Sequence[Entry]) -> bool:
        """Has them written by the next `append`, before its own entries and in one commit with them.

        False if they are not taken, because too many wait: the log cannot be written for some time.
        """
        with self._appending:
            if len(self._deferred) >= _MOST_DEFERRED:
                return False
            self._deferred += entries
        return True

    @property
    def has_deferred(self) -> bool:
        return bool(self._deferred)

    def _extend(self, entries: Sequence[Entry]) -> int:
        attachments = {
            digest: (data, place) for place, entry in enumerate(entries) for digest, data in entry.attachments.items()
        }
        return self._store.extend(lambda head: follow(head, entries), attachments)[-1].seq

    def may_need_checkpoint(self) -> bool:
        """Whether a checkpoint may be due, without reading the file; `checkpoint_if_due` reads it."""
        return not self._is_signed_lately() and not self._signing.locked()

    def checkpoint_if_due(self) -> None:
        """Signs and keeps a checkpoint if one is due, which takes some milliseconds."""
        signed = self.sign_if_due()
        if signed is not None:
            self.keep(signed)

    def sign_if_due(self) -> Checkpoint | None:
        """The quick half of `checkpoint_if_due`; what it returns is to be kept. One thread of this process at a time.

        None if none is due, or another thread is signing.
        """
        signed: Checkpoint | None = None
        if not self._signing.acquire(blocking=False):
            return None
        try:
            while self._is_checkpoint_due():  # again: others go on writing meanwhile, and find it taken
                signed = self._sign()
        finally:
            self._signing.release()
        return signed

    def keep(self, signed: Checkpoint) -> None:
        """Puts a checkpoint and all before it on the disk, here and in a file of its own; waits for the disk."""
        with self._keeping:
            if signed.seq <= self._kept_seq:
                return  # a newer one is there, which covers it
            is_settling = signed.seq // _SETTLE_RECORDS != self._kept_seq // _SETTLE_RECORDS
            (self._store.settle if is_settling else self._store.sync)()
            try:
                checkpoints.keep(signed, self.folder)
            except OSError as error:
                raise AuditError(
                    f"the checkpoint of the audit log {self.path} cannot be kept: {error.strerror}"
                ) from error
            self._kept_seq = signed.seq

    def checkpoint(self) -> Checkpoint:
        """Sign all that is there. On the disk, here and in a file of its own, when this returns.

        AuditError when something is gone that no signed record of a pruning announces.
        """
        signed = self._sign()
        self.keep(signed)
        return signed

    def _sign(self) -> Checkpoint:
        key, name, moment = self.signing_key(), self._own_name(), timestamp(time.time())
        signed: list[Checkpoint] = []

        def conclude(head: Head) -> list[Record]:
            signed.append(checkpoints.sign_checkpoint(name, head.seq + 1, head.hash, moment, current_user(), key))
            return follow(head, [checkpoints.as_entry(signed[-1])])

        (record,) = patiently(self.path, lambda: self._store.extend(conclude, {}, is_checkpoint=True))
        self._checkpoint_seq, self._checkpoint_moment = record.seq, time.time()
        return signed[-1]

    def sign_all(self) -> int:
        """Sign what is not signed yet, if anything. The number of the newest checkpoint."""
        head = patiently(self.path, self._store.head)
        return head.seq if head.checkpoint_seq == head.seq else self.checkpoint().seq

    def sync(self) -> None:
        self._store.sync()

    def head(self) -> Head:
        return self._store.head()

    def find(self, query: Query) -> Iterator[Record]:
        return self._store.find(query)

    def attachment(self, sha256: str) -> bytes | None:
        return self._store.attachment(sha256)

    def attachments(self) -> Iterator[tuple[str, bytes]]:
        return self._store.attachments()

    def check_own_checkpoint(self, record: Record) -> None:
        """AuditError unless this log's key has signed the record, its time included, as a checkpoint of this log."""
        found = checkpoints.of_record(record)
        is_own = found is not None and found.is_signed_by(self.signing_key().public) and found.log == self._own_name()
        if found is None or not is_own or not checkpoints.is_as_written(found, record):
            raise changed_by_others(self.path, f"record {record.seq} is not the checkpoint that was signed as that")

    def public_key(self) -> bytes:
        return self.signing_key().public

    def announce_pruning(self, entry: Entry, first: Record) -> None:
        """Write the entry of a `LogPruned`, signed: the log is to begin with this record."""
        key, name = self.signing_key(), self._own_name()

        def conclude(head: Head) -> list[Record]:
            return follow(head, [prunings.sign_pruning(entry, name, first, head, key)])

        patiently(self.path, lambda: self._store.extend(conclude, {}))

    def drop_before(self, seq: int) -> int:
        """Removes older records. Only `retention` calls it, which keeps the rest verifiable."""
        return patiently(self.path, lambda: self._store.drop_before(seq))

    def begin(self) -> None:
        """The first record names the log and its key; who comes second finds it there."""
        if self._store.head().seq:
            return
        _make_key(self.folder)
        public = self.signing_key().public
        _write_public(public, self.folder)
        data = {"log": f"log_{os.urandom(12).hex()}", "key": public.hex()}
        entry = Entry(timestamp(time.time()), CREATED, current_user(), None, {}, data)
        try:
            patiently(self.path, lambda: self._store.extend(lambda head: follow(_none_yet(head), [entry]), {}))
        except _BegunError:
            return
        self.checkpoint()

    def _is_checkpoint_due(self) -> bool:
        """Looks at the store seldom: others may have signed in the meantime."""
        if self._is_signed_lately():
            return False
        try:
            head = self._store.head()
        except BusyError:  # the process that writes at this moment asks again, or the next record does
            return False
        # A note that cannot be true must not put the next signature off.
        self._checkpoint_seq = min(head.checkpoint_seq, head.seq)
        self._checkpoint_moment = time.time() - _age_seconds(head.checkpoint_time)
        return not self._is_signed_lately()

    def _is_signed_lately(self) -> bool:
        age = time.time() - self._checkpoint_moment
        return self._last_seq - self._checkpoint_seq < EVERY_RECORDS and 0 <= age < EVERY_SECONDS

    def signing_key(self) -> keys.SigningKey:
        if self._key is None:
            self._key = keys.load_key(self.folder)
        return self._key

    def _own_name(self) -> str:
        """Random, made with the log; checkpoints say it, so that one log's are not taken for another's.

        Asked before anything is signed, and so it is seen here whether the log is what it was when we signed last.
        """
        beside = self._checkpoint_beside()
        held = None if beside is None else self._record(beside.seq)
        oldest = self._oldest()
        if beside is not None and beside.seq >= oldest.seq and (held is None or checkpoints.of_record(held) != beside):
            raise changed_by_others(
                self.path, f"the checkpoint in {checkpoints.FILE} was signed as record {beside.seq}, which is another"
            )
        return str(oldest.data.get("log"))

    def _oldest(self) -> Record:
        """The first record; AuditError unless a log begins so, or one that was pruned."""
        oldest = next(self._store.find(Query(limit=1)), None)
        if oldest is None:
            raise changed_by_others(self.path, "it has no records")
        if oldest.data.get("key") != self.signing_key().public.hex():
            raise AuditError(
                f"{self.folder / keys.PRIVATE} is another key than the one that the audit log was begun with; "
                "restore that one, or move the whole folder away, and a new log is begun"
            )
        if (oldest.seq == 1 and oldest.kind == CREATED) or oldest == self._announced:
            return oldest
        if oldest.seq > 1 and any(self._announces(record, oldest) for record in self._prunings()):
            self._announced = oldest
            return oldest
        if next(self._store.find(Query(limit=1)), None) != oldest:
            return self._oldest()  # pruned meanwhile
        raise changed_by_others(
            self.path,
            f"it begins with record {oldest.seq}: records 1 to {oldest.seq - 1} are missing, and no record that is "
            "signed with the key says that they were pruned",
        )

    def _prunings(self) -> Iterator[Record]:
        return self._store.find(Query(kind=prunings.KIND, newest_first=True))

    def _announces(self, record: Record, oldest: Record) -> bool:
        found = prunings.read_pruning(record, self.signing_key().public)
        if found is None or (found.first, found.first_hash) != (oldest.seq, oldest.hash.hex()):
            return False
        before = self._record(found.seq - 1)
        return found.log == oldest.data.get("log") and before is not None and before.hash.hex() == found.hash

    def _record(self, seq: int) -> Record | None:
        found = next(self._store.find(Query(after=seq - 1, limit=1)), None)
        return found if found is not None and found.seq == seq else None

    def _checkpoint_beside(self) -> Checkpoint | None:
        path = self.folder / checkpoints.FILE
        try:
            return checkpoints.read(path) if path.exists() else None
        except UsageError as error:
            raise changed_by_others(self.path, str(error)) from error


class _BegunError(Exception):
    """Another process was quicker."""


def _none_yet(head: Head) -> Head:
    if head.seq:
        raise _BegunError
    return head


def _age_seconds(moment: str) -> float:
    """The age of the newest checkpoint. A clock that was set back does not put the next one off for ever."""
    try:
        age = time.time() - datetime.fromisoformat(moment).timestamp()
    except (ValueError, OverflowError, OSError):
        return EVERY_SECONDS
    return age if age >= 0 else EVERY_SECONDS


_logs: dict[tuple[ProcessKey, str], AuditLog] = {}
"""One for each process: a connection to SQLite does not survive a fork."""


def _opened(process: ProcessKey, folder: str) -> AuditLog:
    known = _logs.get((process, folder))
    if known is not None:
        return known
    place = Path(folder)
    FOLDER.make(place)
    path = place / DATABASE
    log = AuditLog(SqliteStore(path), place, path)
    log.begin()
    first = _logs.setdefault((process, folder), log)
    if first is not log:
        # Another thread was quicker.
        log.let_go()
    return first


def close_all_but(folder: Path | None) -> None:
    """Closes the logs of other folders, and this one if it was replaced: for a process that outlives its callers."""
    for (process, _), log in list(_logs.items()):
        if process == process_key() and (log.folder != folder or log.is_replaced()):
            log.close()


def _make_key(folder: Path) -> None:
    try:
        keys.make_key(folder)
    except OSError as error:
        raise AuditError(f"a key for the audit log cannot be made in {folder}: {error.strerror}") from error


def _write_public(public: bytes, folder: Path) -> None:
    draft = folder / f".key-{os.urandom(8).hex()}"
    try:
        keys.write_durably(draft, [keys.public_pem(public)])
        os.replace(draft, folder / keys.PUBLIC)
    except OSError as error:
        raise AuditError(f"the public key of the audit log cannot be written to {folder}: {error.strerror}") from error


@cache
def current_user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"uid {os.geteuid()}"
