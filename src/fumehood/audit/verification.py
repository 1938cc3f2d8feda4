"""Verification: goes through the records once and names every place where the chain or a signature does not fit.

Needs the records and, for the signatures, the public key; nothing secret and no second copy. Pure: what is to be
checked is handed in, whether it comes from a store or from an export.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain

from fumehood.audit import checkpoints, prunings
from fumehood.audit.checkpoints import Checkpoint
from fumehood.audit.records import CREATED, GENESIS, Head, Record, link, read_record, timestamp
from fumehood.errors import AuditError

MAX_PROBLEMS = 100
# More than are signed together: others go on writing while one signs, or is killed before it does.
MOST_UNSIGNED_RECORDS = 4 * checkpoints.EVERY_RECORDS
_SIGNING_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Problem:
    """Something is wrong at, or right before, record `seq`; with the file as a whole when that is 0."""

    seq: int
    text: str


@dataclass(frozen=True, slots=True)
class Report:
    problems: tuple[Problem, ...]
    log: str
    first: int
    last: int
    records: int
    signed: int
    """The last valid checkpoint, which vouches for all before it. Those after it hang together, and that is all."""
    notes: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.problems


def verify(
    records: Iterable[Record],
    public: bytes,
    *,
    kept: Iterable[Checkpoint] = (),
    attachments: Iterable[tuple[str, bytes, int | None]] | None = None,
    head: Head | None = None,
    faults: Iterable[str] = (),
) -> Report:
    """`kept` are checkpoints from elsewhere; `attachments` None when they are not to be checked.

    An attachment is its digest, its content and, where that is noted, the last record that refers to it. `faults` are
    what is wrong with whatever holds the records.
    """
    walk = _Walk(public, head)
    for checkpoint in kept:
        walk.kept.setdefault(checkpoint.seq, []).append(checkpoint)
    try:
        for fault in faults:
            walk.complain(0, fault)
        for record in records:
            walk.step(record)
        walk.finish()
        if attachments is not None:
            walk.check_attachments(attachments)
    except AuditError as error:
        walk.complain(0, f"damaged: {error}")
    return walk.report()


@dataclass
class _Walk:
    public: bytes
    head: Head | None
    kept: dict[int, list[Checkpoint]] = field(default_factory=dict[int, list[Checkpoint]])
    problems: list[Problem] = field(default_factory=list[Problem])
    notes: list[str] = field(default_factory=list[str])
    stored: dict[str, int] = field(default_factory=dict[str, int])
    log: str = ""
    first: int = 0
    seq: int = 0
    hash: bytes = GENESIS
    count: int = 0
    signed: int = 0
    checkpoint: tuple[int, str] = (0, "")
    time: str = ""
    due: str = ""
    """When the next checkpoint has to be there."""
    overdue: str = ""
    """The first time after that of a record that is not signed."""
    last_time: str = ""
    first_hash: bytes = b""
    beginnings: set[int] = field(default_factory=lambda: {1})
    """Where the log may begin."""
    strays: list[int] = field(default_factory=list[int])

    def step(self, record: Record) -> None:
        if record.seq < 1 or (self.head is not None and record.seq > self.head.seq):
            self.strays.append(record.seq)
            return
        self.count += 1
        if not self.first:
            self._begin(record)
        if record.seq != self.seq + 1:
            self._gap(record.seq)
        self._check_content(record)
        if record.kind == checkpoints.KIND:
            self._check_checkpoint(record)
            self._look_at_clock(record)
            self.checkpoint = record.seq, record.time
        elif record.kind == prunings.KIND:
            self._check_pruning(record)
        self._look_for_signature(record)
        for checkpoint in self.kept.pop(record.seq, ()):
            self._compare_kept(checkpoint)
        for digest in record.stored:
            self.stored[digest] = record.seq
        self.seq, self.hash = record.seq, record.hash

    def finish(self) -> None:
        if self.strays:
            which, end = _span(self.strays[0], self.strays[-1]), self.seq if self.head is None else self.head.seq
            self.complain(self.strays[0], f"inserted: {which} outside of the log, which ends with record {end}")
        if self.head is not None:
            self._check_head(self.head)
        self._check_unsigned()
        if not self.count:
            self.complain(0, "emptied: a log begins with the record that names it")
        elif self.first not in self.beginnings:
            self.complain(
                self.first,
                f"removed: {_missing(1, self.first - 1)}, and no signed record says that they were pruned"
                + ("" if self.head else "; of an archive that follows another one, give that one with --checkpoint"),
            )
        for checkpoint in sorted(chain.from_iterable(self.kept.values()), key=lambda each: each.seq):
            self._miss_kept(checkpoint)

    def _check_head(self, head: Head) -> None:
        if head.seq > self.seq:
            self.complain(head.seq, f"cut off: {_missing(self.seq + 1, head.seq)}")
        elif (head.seq, head.hash) != (self.seq, self.hash):
            self.complain(self.seq, f"the log's own note of its end is record {head.seq}, not this one")
        if (head.checkpoint_seq, head.checkpoint_time) != self.checkpoint:
            self.complain(
                self.checkpoint[0], f"the log's own note of its newest checkpoint is record {head.checkpoint_seq}"
            )

    def check_attachments(self, attachments: Iterable[tuple[str, bytes, int | None]]) -> None:
        for digest, data, noted in attachments:
            seq = self.stored.pop(digest, None)
            if hashlib.sha256(data).hexdigest() != digest:
                self.complain(seq or self.seq, f"the attachment {digest[:12]} was edited")
            elif seq is None:
                self.complain(self.seq, f"no record refers to the attachment {digest[:12]}")
            elif noted not in (None, seq):
                self.complain(seq, f"the attachment {digest[:12]} is noted as one of record {noted}")
        for digest, seq in self.stored.items():
            self.complain(seq, f"the attachment {digest[:12]} of this record is missing")

    def report(self) -> Report:
        problems = tuple(sorted(self.problems, key=lambda problem: problem.seq))
        return Report(problems, self.log, self.first, self.seq, self.count, self.signed, tuple(self.notes))

    def _begin(self, record: Record) -> None:
        """A log begins with the record that names it, or, pruned, with a checkpoint that vouches for what is gone."""
        self.first, self.first_hash = record.seq, record.hash
        if record.seq == 1:
            self.log = str(record.data.get("log", "")) if record.kind == CREATED else ""
            return
        checkpoint = checkpoints.of_record(record)
        if checkpoint is not None and checkpoint.is_signed_by(self.public):
            self.log, self.seq, self.hash = checkpoint.log, record.seq - 1, _bytes(checkpoint.hash)
        else:
            self.complain(
                record.seq, f"removed: {_missing(1, record.seq - 1)}, and no signed checkpoint stands in for them"
            )
            self.seq, self.hash = record.seq - 1, b""

    def _gap(self, seq: int) -> None:
        if seq <= self.seq:
            self.complain(seq, "out of order: it follows a record with a higher number")
        else:
            self.complain(seq, f"removed: {_missing(self.seq + 1, seq - 1)} before it")
            self.hash = b""  # what it should follow is not known

    def _check_content(self, record: Record) -> None:
        try:
            read = read_record(record.body, record.hash)
        except ValueError as error:
            self.complain(record.seq, f"edited: its text is not a record ({error})")
            return
        if read.seq != record.seq:
            self.complain(record.seq, f"moved: it was written as record {read.seq}")
        elif read != record:
            self.complain(record.seq, "edited: the columns to find it by are not those of its text")
        elif self.hash and link(self.hash, record.body) != record.hash:
            self.complain(record.seq, "edited, or what comes before it was: its hash does not fit")

    def _check_checkpoint(self, record: Record) -> None:
        checkpoint = checkpoints.of_record(record)
        if checkpoint is None or not checkpoint.is_signed_by(self.public):
            self.complain(record.seq, "forged: this checkpoint is not signed with the key")
        elif checkpoint.log != self.log:
            self.complain(record.seq, f"this checkpoint was signed for another log, {checkpoint.log}")
        elif self.hash and checkpoint.hash != self.hash.hex():
            since = f"{self.signed + 1} to {record.seq - 1}"
            self.complain(record.seq, f"rewritten: this checkpoint was signed when records {since} were others")
        elif not checkpoints.is_as_written(checkpoint, record):
            self.complain(record.seq, "edited: this checkpoint has something in it that no checkpoint has")
        else:
            self.signed = record.seq

    def _check_pruning(self, record: Record) -> None:
        pruning = prunings.read_pruning(record, self.public)
        if pruning is None:
            self.complain(record.seq, "forged: this record of a pruning is not signed with the key")
        elif pruning.log != self.log:
            self.complain(record.seq, f"this record of a pruning was signed for another log, {pruning.log}")
        elif (self.hash and pruning.hash != self.hash.hex()) or (
            pruning.first == self.first and pruning.first_hash != self.first_hash.hex()
        ):
            self.complain(
                record.seq, "rewritten: this record of a pruning was signed when the records before it were others"
            )
        else:
            self.beginnings.add(pruning.first)

    def _look_for_signature(self, record: Record) -> None:
        if record.seq == self.signed or not self.due:
            self.due, self.overdue = _later(record.time, checkpoints.EVERY_SECONDS), ""
        elif record.time > self.due and not self.overdue:
            self.overdue = record.time
        self.last_time = record.time

    def _check_unsigned(self) -> None:
        """A log's newest records are signed soon; those of an export never are, so anyone may have written them.

        Who writes a record sees to it that it is signed in time, or was killed before that.
        """
        is_export = self.head is None
        if self.seq > self.signed and (is_export or not (self.signed or self.problems)):
            first = max(self.first, self.signed + 1)
            which = f"record {first}" if first == self.seq else f"records {first} to {self.seq}"
            self.complain(first, f"not signed: no checkpoint signed with the key covers {which}")
            return
        is_late = bool(self.overdue) and self.last_time > _later(self.overdue, _SIGNING_SECONDS)
        if self.seq - self.signed > MOST_UNSIGNED_RECORDS or is_late:
            self.complain(
                self.signed + 1,
                f"not signed: records {self.signed + 1} to {self.seq} follow without a checkpoint, and Fumehood "
                f"signs every {checkpoints.EVERY_RECORDS} records and every hour",
            )

    def _compare_kept(self, checkpoint: Checkpoint) -> None:
        """Called before we move on: `hash` is still that of the record before."""
        self._check_kept(checkpoint)
        if checkpoint.hash != self.hash.hex():
            self.complain(
                checkpoint.seq, "rewritten: the checkpoint that was kept was signed for other records before it"
            )
        elif self.head is None and checkpoint.seq == self.first:
            # An export may begin where the caller knows that it does.
            self.beginnings.add(checkpoint.seq)

    def _miss_kept(self, checkpoint: Checkpoint) -> None:
        self._check_kept(checkpoint)
        if checkpoint.seq > self.seq:
            self.complain(
                checkpoint.seq,
                f"rolled back, or cut off: the log ends with record {self.seq}, and a checkpoint was signed as record "
                f"{checkpoint.seq} on {checkpoint.time}",
            )
        elif checkpoint.seq < self.first:
            self.complain(
                checkpoint.seq,
                f"the checkpoint that was kept is older than the log, which begins with record {self.first}: verify "
                "the archive of what was pruned with it",
            )
        elif self.count:
            self.complain(checkpoint.seq, "removed: it is missing, and a checkpoint of it was kept")

    def _check_kept(self, checkpoint: Checkpoint) -> None:
        if not checkpoint.is_signed_by(self.public):
            self.complain(checkpoint.seq, "the checkpoint that was kept is not signed with the key")
        elif self.count and checkpoint.log != self.log:
            self.complain(checkpoint.seq, f"the checkpoint that was kept belongs to another log, {checkpoint.log}")

    def _look_at_clock(self, record: Record) -> None:
        """Clocks are set; the order of the records is their numbers'. Others may tell later what happened before."""
        if record.time < self.time and record.time[:19] != self.time[:19] and len(self.notes) < MAX_PROBLEMS:
            self.notes.append(f"the clock went back before checkpoint {record.seq}: {self.time} -> {record.time}")
        self.time = record.time

    def complain(self, seq: int, text: str) -> None:
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(Problem(seq, text))


def _missing(first: int, last: int) -> str:
    return f"record {first} is missing" if first >= last else f"records {first} to {last} are missing"


def _span(first: int, last: int) -> str:
    return f"record {first} lies" if first == last else f"records {first} to {last} lie"


def _later(moment: str, seconds: int) -> str:
    """Empty when it is no time."""
    try:
        return timestamp(datetime.fromisoformat(moment).timestamp() + seconds)
    except (ValueError, OverflowError, OSError):
        return ""


def _bytes(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""


def problems_in_words(report: Report) -> Iterator[str]:
    for problem in report.problems:
        yield f"record {problem.seq}: {problem.text}" if problem.seq else f"the file: {problem.text}"
