"""A checkpoint: a signed statement that the log, up to here, is this one. It is a record like all others.

A copy that is kept where the log's owner cannot change it proves later that nothing before it was rewritten or rolled
back. The newest one also lies beside the log.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from fumehood.audit.keys import SigningKey, is_signed, write_durably
from fumehood.audit.records import Entry, Record
from fumehood.errors import UsageError

KIND = "log.checkpoint"
FILE = "checkpoint.json"
# What is not yet signed can be rewritten by whoever can write the file; what is signed, only by who holds the key.
EVERY_RECORDS = 256
EVERY_SECONDS = 3600


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """`hash` is that of the record before number `seq`, and with it of all records before."""

    log: str
    seq: int
    hash: str
    time: str
    key: str
    signature: str = ""

    def statement(self) -> bytes:
        return f"fumehood audit checkpoint 1\n{self.log}\n{self.seq}\n{self.hash}\n{self.time}\n".encode(
            "ascii", "replace"
        )

    def is_signed_by(self, public: bytes) -> bool:
        try:
            signature = bytes.fromhex(self.signature)
        except ValueError:
            return False
        return is_signed(public, self.statement(), signature)

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)


def sign_checkpoint(log: str, seq: int, previous: bytes, time: str, key: SigningKey) -> Checkpoint:
    unsigned = Checkpoint(log, seq, previous.hex(), time, key.public.hex())
    return Checkpoint(log, seq, previous.hex(), time, key.public.hex(), key.sign(unsigned.statement()).hex())


def as_entry(checkpoint: Checkpoint, who: str) -> Entry:
    data = {name: getattr(checkpoint, name) for name in ("log", "hash", "key", "signature")}
    return Entry(checkpoint.time, KIND, who, None, {}, data)


def of_record(record: Record) -> Checkpoint | None:
    """The checkpoint that a record holds, None when it holds none that is complete."""
    return _checked({**record.data, "seq": record.seq, "time": record.time}) if record.kind == KIND else None


def is_as_written(checkpoint: Checkpoint, record: Record) -> bool:
    """Whether the record holds the checkpoint and nothing else: only the next one signs what else is in it."""
    return record.body == as_entry(checkpoint, str(record.parse().get("who"))).placed(record.seq)


def keep(checkpoint: Checkpoint, folder: Path) -> None:
    """Beside the log, in place of the one before."""
    draft = folder / f".checkpoint-{os.urandom(8).hex()}"
    write_durably(draft, [checkpoint.to_json().encode(), b"\n"])
    os.replace(draft, folder / FILE)


def read(path: Path) -> Checkpoint:
    """One that was kept, by us or elsewhere."""
    try:
        fields: object = json.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(f"the checkpoint {path} cannot be read: {error.strerror}") from error
    except ValueError:
        fields = None
    checkpoint = _checked(cast("Mapping[str, Any]", fields)) if isinstance(fields, dict) else None
    if checkpoint is None:
        raise UsageError(f"{path} holds no checkpoint; `hood audit checkpoint` prints one")
    return checkpoint


def _checked(fields: Mapping[str, Any]) -> Checkpoint | None:
    texts = [fields.get(name) for name in ("log", "hash", "time", "key", "signature")]
    seq = fields.get("seq")
    if type(seq) is not int or not all(isinstance(text, str) for text in texts):
        return None
    log, hash, time, key, signature = cast("list[str]", texts)
    return Checkpoint(log, seq, hash, time, key, signature)
