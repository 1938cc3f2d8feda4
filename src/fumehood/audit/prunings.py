"""The record of a pruning: a signed statement that the log begins later from now on. It is a record like all others.

It has a signature of its own: a checkpoint vouches for the records before it, whatever they say, and whoever can write
the file can add records that the next checkpoint signs together with the rest.
"""

from __future__ import annotations

from typing import Any, cast

from fumehood.audit.events import AuditEvent
from fumehood.audit.keys import SigningKey, is_signed
from fumehood.audit.records import Entry, Head, Record, canonical
from fumehood.frozen import frozen

KIND = "log.pruned"
_PURPOSE = b"fumehood audit pruning 1\n"


@frozen
class LogPruned(AuditEvent):
    """Records before `first` were removed on purpose; the checkpoint that is record `first` vouches for them."""

    kind = KIND

    first: int
    records: int
    archive: str | None


@frozen
class Pruning:
    """`hash` is that of the record before number `seq`, so that the statement counts in this place and no other."""

    log: str
    seq: int
    hash: str
    first: int
    first_hash: str


def sign_pruning(entry: Entry, log: str, first: Record, head: Head, key: SigningKey) -> Entry:
    """The entry of a `LogPruned`, signed as the record that comes after `head`."""
    place = {"log": log, "hash": head.hash.hex(), "first_hash": first.hash.hex(), "key": key.public.hex()}
    unsigned = entry._replace(data={**entry.data, **place})
    signature = key.sign(_statement(unsigned.placed(head.seq + 1))).hex()
    return unsigned._replace(data={**unsigned.data, "signature": signature})


def read_pruning(record: Record, public: bytes) -> Pruning | None:
    """What the record of a pruning says, None unless all that is in it is signed with the key."""
    fields = record.parse()
    match fields:
        case {
            "seq": record.seq,
            "kind": "log.pruned",
            "data": {
                "log": str(log),
                "hash": str(previous),
                "first": int(first),
                "first_hash": str(first_hash),
                "key": str(key),
                "signature": str(signature),
            },
        } if key == public.hex() and _is_signed(record, fields, public, signature):
            return Pruning(log, record.seq, previous, first, first_hash)
        case _:
            return None


def _is_signed(record: Record, fields: dict[str, Any], public: bytes, signature: str) -> bool:
    """In the one spelling of text and signature: nothing else is signed."""
    data = cast("dict[str, object]", fields["data"])
    rest = {name: value for name, value in data.items() if name != "signature"}
    try:
        raw = bytes.fromhex(signature)
        is_canonical = raw.hex() == signature and canonical(fields) == record.body
        return is_canonical and is_signed(public, _statement(canonical({**fields, "data": rest})), raw)
    except (ValueError, RecursionError):
        return False


def _statement(body: str) -> bytes:
    return _PURPOSE + body.encode("ascii")
