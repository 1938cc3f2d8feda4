"""Was anything changed? Goes through the records once and names every place where they do not hang together.

Needs the records and, for the signatures, the public key; nothing secret and no second copy. Pure: what is to be
checked is handed in, whether it comes from a store or from an export.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from fumehood.audit import checkpoints
from fumehood.audit.chain import GENESIS, Head, link
from fumehood.audit.checkpoints import Checkpoint
from fumehood.audit.events import AuditEvent
from fumehood.audit.records import Record, read_record

MAX_PROBLEMS = 100
CREATED, PRUNED = "log.created", "log.pruned"


@dataclass(frozen=True, slots=True)
class Problem:
    """Something is wrong at, or right before, record `seq`."""

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
    """The last record that a valid checkpoint vouches for; those after it hang together, and nobody has signed them."""
    notes: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.problems


@dataclass(frozen=True, slots=True)
class LogPruned(AuditEvent):
    """Records before `first` were removed on purpose; the checkpoint that is record `first` vouches for them."""

    kind = PRUNED

    first: int
    records: int
    archive: str | None


def verify(
    records: Iterable[Record],
    public: bytes,
    *,
    kept: Iterable[Checkpoint] = (),
    attachments: Iterable[tuple[str, bytes]] | None = None,
    head: Head | None = None,
) -> Report:
    """`kept` are checkpoints from elsewhere; `attachments` None when they are not to be checked."""
    walk = _Walk(public, {checkpoint.seq: checkpoint for checkpoint in kept})
    for record in records:
        walk.step(record)
    walk.finish(head)
    if attachments is not None:
        walk.check_attachments(attachments)
    return walk.report()


@dataclass
class _Walk:
    public: bytes
    kept: dict[int, Checkpoint]
    problems: list[Problem] = field(default_factory=list[Problem])
    notes: list[str] = field(default_factory=list[str])
    stored: dict[str, int] = field(default_factory=dict[str, int])
    log: str = ""
    first: int = 0
    seq: int = 0
    hash: bytes = GENESIS
    count: int = 0
    signed: int = 0
    time: str = ""
    pruned_to: int = 1

    def step(self, record: Record) -> None:
        self.count += 1
        if not self.first:
            self._begin(record)
        if record.seq != self.seq + 1:
            self._gap(record.seq)
        self._check_content(record)
        if record.kind == checkpoints.KIND:
            self._check_checkpoint(record)
            self._look_at_clock(record)
        elif record.kind == PRUNED:
            first = record.data.get("first")
            self.pruned_to = max(self.pruned_to, first if isinstance(first, int) else 0)
        if record.seq in self.kept:
            self._compare_kept(self.kept.pop(record.seq))
        for digest in record.stored:
            self.stored[digest] = record.seq
        self.seq, self.hash = record.seq, record.hash

    def finish(self, head: Head | None) -> None:
        if self.first > 1 and self.pruned_to < self.first:
            self._complain(
                self.first, f"removed: {_missing(1, self.first - 1)}, and no record says that they were pruned"
            )
        if head is not None and head.seq > self.seq:
            self._complain(head.seq, f"cut off: {_missing(self.seq + 1, head.seq)}")
        elif head is not None and (head.seq, head.hash) != (self.seq, self.hash):
            self._complain(self.seq, f"the log's own note of its end is record {head.seq}, not this one")
        for checkpoint in sorted(self.kept.values(), key=lambda each: each.seq):
            self._miss_kept(checkpoint)

    def check_attachments(self, attachments: Iterable[tuple[str, bytes]]) -> None:
        for digest, data in attachments:
            seq = self.stored.pop(digest, None)
            if hashlib.sha256(data).hexdigest() != digest:
                self._complain(seq or self.seq, f"the attachment {digest[:12]} was edited")
            elif seq is None:
                self._complain(self.seq, f"no record refers to the attachment {digest[:12]}")
        for digest, seq in self.stored.items():
            self._complain(seq, f"the attachment {digest[:12]} of this record is missing")

    def report(self) -> Report:
        problems = tuple(sorted(self.problems, key=lambda problem: problem.seq))
        return Report(problems, self.log, self.first, self.seq, self.count, self.signed, tuple(self.notes))

    def _begin(self, record: Record) -> None:
        """A log begins with the record that names it, or, pruned, with a checkpoint that vouches for what is gone."""
        self.first = record.seq
        if record.seq == 1:
            self.log = str(record.data.get("log", "")) if record.kind == CREATED else ""
            return
        checkpoint = checkpoints.of_record(record)
        if checkpoint is not None and checkpoint.is_signed_by(self.public):
            self.log, self.seq, self.hash = checkpoint.log, record.seq - 1, _bytes(checkpoint.hash)
        else:
            self._complain(
                record.seq, f"removed: {_missing(1, record.seq - 1)}, and no signed checkpoint stands in for them"
            )
            self.seq, self.hash = record.seq - 1, b""

    def _gap(self, seq: int) -> None:
        if seq <= self.seq:
            self._complain(seq, "out of order: it follows a record with a higher number")
        else:
            self._complain(seq, f"removed: {_missing(self.seq + 1, seq - 1)} before it")
            self.hash = b""  # what it should follow is not known

    def _check_content(self, record: Record) -> None:
        try:
            read = read_record(record.body, record.hash)
        except ValueError as error:
            self._complain(record.seq, f"edited: its text is no record ({error})")
            return
        if read.seq != record.seq:
            self._complain(record.seq, f"moved: it was written as record {read.seq}")
        elif read != record:
            self._complain(record.seq, "edited: the columns to find it by are not those of its text")
        elif self.hash and link(self.hash, record.body) != record.hash:
            self._complain(record.seq, "edited, or what comes before it was: its hash does not fit")

    def _check_checkpoint(self, record: Record) -> None:
        checkpoint = checkpoints.of_record(record)
        if checkpoint is None or not checkpoint.is_signed_by(self.public):
            self._complain(record.seq, "forged: this checkpoint is not signed with the key")
        elif checkpoint.log != self.log:
            self._complain(record.seq, f"this checkpoint was signed for another log, {checkpoint.log}")
        elif self.hash and checkpoint.hash != self.hash.hex():
            since = f"{self.signed + 1} to {record.seq - 1}"
            self._complain(record.seq, f"rewritten: this checkpoint was signed when records {since} were others")
        else:
            self.signed = record.seq

    def _compare_kept(self, checkpoint: Checkpoint) -> None:
        """Called before we move on: `hash` is still that of the record before."""
        self._check_kept(checkpoint)
        if checkpoint.hash != self.hash.hex():
            self._complain(
                checkpoint.seq, "rewritten: the checkpoint that was kept was signed for other records before it"
            )

    def _miss_kept(self, checkpoint: Checkpoint) -> None:
        self._check_kept(checkpoint)
        if checkpoint.seq > self.seq:
            self._complain(
                checkpoint.seq,
                f"rolled back, or cut off: the log ends with record {self.seq}, and a checkpoint was signed as record "
                f"{checkpoint.seq} on {checkpoint.time}",
            )

    def _check_kept(self, checkpoint: Checkpoint) -> None:
        if not checkpoint.is_signed_by(self.public):
            self._complain(checkpoint.seq, "the checkpoint that was kept is not signed with the key")
        elif checkpoint.log != self.log:
            self._complain(checkpoint.seq, f"the checkpoint that was kept belongs to another log, {checkpoint.log}")

    def _look_at_clock(self, record: Record) -> None:
        """Clocks are set; the order of the records is their numbers'. Others may tell later what happened before."""
        if record.time < self.time and record.time[:19] != self.time[:19] and len(self.notes) < MAX_PROBLEMS:
            self.notes.append(f"the clock went back before checkpoint {record.seq}: {self.time} -> {record.time}")
        self.time = record.time

    def _complain(self, seq: int, text: str) -> None:
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(Problem(seq, text))


def _missing(first: int, last: int) -> str:
    return f"record {first} is missing" if first >= last else f"records {first} to {last} are missing"


def _bytes(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""


def problems_in_words(report: Report) -> Iterator[str]:
    for problem in report.problems:
        yield f"record {problem.seq}: {problem.text}"
