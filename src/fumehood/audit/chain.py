"""How records hang together: each one's hash covers the hash of the one before. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

from fumehood.audit.records import Entry, Record

# What the first record follows.
GENESIS = bytes(32)
_PURPOSE = b"fumehood audit record 1\n"


class Head(NamedTuple):
    """Where a log ends: the last record's number and hash, and which record is the newest checkpoint."""

    seq: int
    hash: bytes
    checkpoint_seq: int
    checkpoint_time: str


EMPTY = Head(0, GENESIS, 0, "")


def link(previous: bytes, body: str) -> bytes:
    """The hash of the record that has this body and follows the one with that hash."""
    return hashlib.sha256(_PURPOSE + previous + body.encode("utf-8", "surrogateescape")).digest()


def follow(head: Head, entries: Iterable[Entry]) -> list[Record]:
    """The entries as the records that come after `head`."""
    records: list[Record] = []
    seq, previous = head.seq, head.hash
    for entry in entries:
        seq += 1
        body = entry.placed(seq)
        previous = link(previous, body)
        ids = entry.ids
        records.append(Record(seq, previous, entry.time, entry.kind, ids.get("run"), ids.get("sandbox"), body))
    return records
