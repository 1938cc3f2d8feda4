"""A checkpoint: a signed statement that the log, up to here, is this one. It is a record like all others.

A copy that is kept where the log's owner cannot change it proves later that nothing before it was rewritten or rolled
back. The newest one also lies beside the log.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

from fumehood.audit.keys import SigningKey, is_signed, write_durably
from fumehood.audit.records import Entry, Record, canonical
from fumehood.errors import UsageError
from fumehood.frozen import frozen

KIND = "log.checkpoint"
FILE = "checkpoint.json"
# What is not yet signed can be rewritten by anyone who can write the file; what is signed, only with the key.
EVERY_RECORDS = 256
EVERY_SECONDS = 3600
_PURPOSE = b"fumehood audit checkpoint 2\n"
_FIELDS = {"log": str, "seq": int, "hash": str, "time": str, "who": str, "key": str, "signature": str}
# Those that a record has in `data`; every record has the others.
_OWN_FIELDS = ("log", "hash", "key", "signature")


@frozen
class Checkpoint:
    """`hash` is that of the record before number `seq`, and with it of all records before."""

    log: str
    seq: int
    hash: str
    time: str
    who: str
    key: str
    signature: str = ""

    def statement(self) -> bytes:
        """The signed text: every field but the signature."""
        fields = asdict(self)
        del fields["signature"]
        return _PURPOSE + canonical(fields).encode("ascii")

    def is_signed_by(self, public: bytes) -> bool:
        try:
            signature = bytes.fromhex(self.signature)
        except ValueError:
            return False
        # In its one spelling: nothing else signs the text of the signature.
        is_canonical = self.signature == signature.hex() and self.key == public.hex()
        return is_canonical and is_signed(public, self.statement(), signature)

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)


def sign_checkpoint(log: str, seq: int, previous: bytes, time: str, who: str, key: SigningKey) -> Checkpoint:
    unsigned = Checkpoint(log, seq, previous.hex(), time, who, key.public.hex())
    return replace(unsigned, signature=key.sign(unsigned.statement()).hex())


def as_entry(checkpoint: Checkpoint) -> Entry:
    data = {name: getattr(checkpoint, name) for name in _OWN_FIELDS}
    return Entry(checkpoint.time, KIND, checkpoint.who, None, {}, data)


def of_record(record: Record) -> Checkpoint | None:
    """The checkpoint that a record holds, None when it holds none that is complete."""
    if record.kind != KIND:
        return None
    data = {name: record.data.get(name) for name in _OWN_FIELDS}
    return checkpoint_of({**data, "seq": record.seq, "time": record.time, "who": record.parse().get("who")})


def is_as_written(checkpoint: Checkpoint, record: Record) -> bool:
    """Whether the record holds the checkpoint and nothing else: only the next one signs what else is in it."""
    return record.body == as_entry(checkpoint).placed(record.seq)


def keep(checkpoint: Checkpoint, folder: Path) -> None:
    """Beside the log, in place of the one before."""
    draft = folder / f".checkpoint-{os.urandom(8).hex()}"
    write_durably(draft, [checkpoint.to_json().encode(), b"\n"])
    os.replace(draft, folder / FILE)


def read(path: Path) -> Checkpoint:
    """One that was kept, by us or elsewhere."""
    try:
        # Of a key that occurs twice, another reader may show the other value.
        fields: object = json.loads(path.read_bytes(), object_pairs_hook=_without_repeats)
    except OSError as error:
        raise UsageError(f"the checkpoint {path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError):
        fields = None
    checkpoint = checkpoint_of(cast("dict[str, Any]", fields)) if isinstance(fields, dict) else None
    if checkpoint is None:
        raise UsageError(f"{path} is not a checkpoint; `hood audit checkpoint` prints one")
    return checkpoint


def checkpoint_of(fields: Mapping[str, Any]) -> Checkpoint | None:
    """None unless these are the fields of a checkpoint, all of them and no others."""
    if set(fields) != set(_FIELDS) or not all(type(fields[name]) is kind for name, kind in _FIELDS.items()):
        return None
    return Checkpoint(**fields)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a key occurs twice")
    return fields
