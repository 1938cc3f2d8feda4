"""A witness: a log that records checkpoints of another one, whose owner then cannot rewrite what came before them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from fumehood.audit.checkpoints import Checkpoint
from fumehood.audit.events import AuditEvent
from fumehood.audit.inspection import open_store
from fumehood.audit.records import Record
from fumehood.audit.store import Query
from fumehood.frozen import frozen

_NAMES = ("log", "hash", "time", "who", "key", "signature")


@frozen
class CheckpointWitnessed(AuditEvent):
    """`worker` has shown this checkpoint of its log; `number` is that of the record there."""

    kind = "checkpoint.witnessed"

    worker: str
    number: int
    log: str
    hash: str
    time: str
    who: str
    key: str
    signature: str

    @classmethod
    def of(cls, worker: str, checkpoint: Checkpoint) -> CheckpointWitnessed:
        fields = asdict(checkpoint)
        return cls(worker, fields.pop("seq"), **fields)


def read_witnessed(place: Path, log: str) -> list[Checkpoint]:
    """The checkpoints of a log that the log in this place has recorded."""
    records = open_store(place).find(Query(kind=CheckpointWitnessed.kind))
    return [
        checkpoint for record in records if (checkpoint := _checkpoint(record)) is not None and checkpoint.log == log
    ]


def _checkpoint(record: Record) -> Checkpoint | None:
    texts = {name: record.data.get(name) for name in _NAMES}
    number = record.data.get("number")
    if type(number) is not int or not all(isinstance(value, str) for value in texts.values()):
        return None
    return Checkpoint(seq=number, **{name: str(value) for name, value in texts.items()})
