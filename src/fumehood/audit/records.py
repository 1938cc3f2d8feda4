"""Records of the log, and the hash chain that ties them together: each hash covers the one before. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple, cast

VERSION = 1
CREATED = "log.created"
_STORED = re.compile(r'"stored":"([0-9a-f]{64})"')
# What it gets are trees.
_ENCODER = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False, check_circular=False
)
_quoted = json.encoder.encode_basestring_ascii


def _one_encoder() -> Callable[[object], str]:
    """`_ENCODER.encode`, which makes CPython's encoder anew for every text, with one that is made once."""
    make: Callable[..., Callable[[object, int], Iterable[str]]] | None = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return _ENCODER.encode
    # No memory of what it is in, the separators, sorted keys, no key left out, no number that JSON does not have.
    encode = make(None, _ENCODER.default, _quoted, None, ":", ",", True, False, False)
    return lambda value: "".join(encode(value, 0))


_encode = _one_encoder()


def canonical(value: Mapping[str, object]) -> str:
    """The one spelling of this value: sorted keys, no spaces, ASCII. Numbers are whole, so they have only one too."""
    return _encode(value)


def timestamp(moment: float) -> str:
    """Seconds since 1970 as text that sorts by time."""
    seconds, microseconds = divmod(round(moment * 1_000_000), 1_000_000)
    return f"{_whole_second(seconds)}.{microseconds:06d}Z"


@lru_cache(maxsize=1)
def _whole_second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


class Entry(NamedTuple):
    """What is to be written, before the log has given it a place."""

    time: str
    kind: str
    who: str
    tenant: str | None
    ids: Mapping[str, str]
    data: Mapping[str, object]
    attachments: Mapping[str, bytes] = MappingProxyType({})
    """Content that is kept beside the record, by digest."""

    def placed(self, seq: int) -> str:
        """The text of the record, which is canonical: its parts in the order of their names."""
        data = f'"data":{_encode(self.data)},' if self.data else ""
        ids = f'"ids":{_encode(self.ids)},' if self.ids else ""
        tenant = "" if self.tenant is None else f'"tenant":{_quoted(self.tenant)},'
        return (
            f'{{{data}{ids}"kind":{_quoted(self.kind)},"seq":{seq},{tenant}"time":{_quoted(self.time)},'
            f'"v":{VERSION},"who":{_quoted(self.who)}}}'
        )


class Record(NamedTuple):
    """A place in the log. The columns beside `body` repeat what is in it, so that records can be found by them."""

    seq: int
    hash: bytes
    time: str
    kind: str
    run_id: str | None
    sandbox_id: str | None
    body: str

    def parse(self) -> dict[str, Any]:
        """Empty when the text was changed and is not a record any more."""
        try:
            fields: object = json.loads(self.body)
        except (ValueError, RecursionError):
            return {}
        return cast("dict[str, Any]", fields) if isinstance(fields, dict) else {}

    @property
    def stored(self) -> list[str]:
        """The digests of what is attached to it."""
        return _STORED.findall(self.body)

    @property
    def data(self) -> dict[str, Any]:
        data = self.parse().get("data")
        return cast("dict[str, Any]", data) if isinstance(data, dict) else {}


def read_record(body: str, hash: bytes) -> Record:
    """Parses a record from its text alone; raises ValueError when it is not a record.

    Another spelling of the same values is not one either: readers may differ about it, and an export cannot hold it.
    """
    try:
        fields: object = json.loads(body)
        _require_canonical(fields, body)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    match fields:
        case {"seq": int(seq), "time": str(time), "kind": str(kind)}:
            ids = cast("dict[str, Any]", fields).get("ids", {})
            run, sandbox = (_text_or_none(ids, name) for name in ("run", "sandbox"))
            return Record(seq, hash, time, kind, run, sandbox, body)
        case _:
            raise ValueError("it has no seq, time and kind")


def _require_canonical(fields: object, body: str) -> None:
    if not isinstance(fields, dict) or canonical(cast("dict[str, object]", fields)) != body:
        raise ValueError("it is not spelled as the log spells records")


def _text_or_none(ids: object, name: str) -> str | None:
    value = cast("dict[str, object]", ids).get(name) if isinstance(ids, dict) else None
    return value if isinstance(value, str) else None


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
