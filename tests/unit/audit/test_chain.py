"""A chain of any records verifies, and with any change to it does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.audit.logs import problems

from fumehood.audit.checkpoints import KIND, as_entry, sign_checkpoint
from fumehood.audit.keys import SigningKey
from fumehood.audit.records import EMPTY, Entry, Head, Record, canonical, follow, read_record
from fumehood.audit.verification import Report, verify

KEY = SigningKey(Ed25519PrivateKey.generate())
TIME = "2026-01-01T00:00:00.000000Z"

text = st.text(max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=5,
)
entries = st.builds(
    Entry,
    time=st.just(TIME),
    kind=st.sampled_from(["run.requested", "run.finished", "something.else"]),
    who=text,
    tenant=st.none() | text,
    ids=st.dictionaries(st.sampled_from(["run", "sandbox", "task"]), text),
    data=st.dictionaries(text.filter(lambda name: name != "stored"), values, max_size=3),
)
logs = st.lists(entries, min_size=3, max_size=12)


def chain(contents: list[Entry]) -> list[Record]:
    """As a log has it: the record that names it first, a signed checkpoint last."""
    created = Entry(TIME, "log.created", "me", None, {}, {"log": "log_1", "key": KEY.public.hex()})
    records = follow(EMPTY, [created, *contents])
    last = records[-1]
    signed = sign_checkpoint("log_1", last.seq + 1, last.hash, TIME, "me", KEY)
    return [*records, *follow(Head(last.seq, last.hash, 0, ""), [as_entry(signed)])]


def judge(records: list[Record], head: Record) -> Report:
    newest = next((each.seq for each in reversed(records) if each.kind == KIND), 0)
    return verify(records, KEY.public, head=Head(head.seq, head.hash, newest, TIME))


@settings(deadline=None)
@given(logs)
def test_what_was_written_verifies(contents: list[Entry]) -> None:
    records = chain(contents)
    report = judge(records, records[-1])
    assert problems(report) == []
    assert (report.records, report.signed) == (len(records), len(records))


@settings(deadline=None)
@given(logs, st.data())
def test_any_change_of_a_text_is_seen(contents: list[Entry], data: st.DataObject) -> None:
    records = chain(contents)
    place = data.draw(st.integers(0, len(records) - 1))
    body = records[place].body
    position = data.draw(st.integers(0, len(body) - 1))
    other = data.draw(st.characters(min_codepoint=32, max_codepoint=126).filter(lambda c: c != body[position]))
    changed = records[place]._replace(body=body[:position] + other + body[position + 1 :])
    assert not judge([*records[:place], changed, *records[place + 1 :]], records[-1]).ok


def removed(records: list[Record], place: int) -> list[Record]:
    return [*records[:place], *records[place + 1 :]]


def swapped(records: list[Record], place: int) -> list[Record]:
    return [*records[:place], records[place + 1], records[place], *records[place + 2 :]]


def doubled(records: list[Record], place: int) -> list[Record]:
    return [*records[: place + 1], records[place], *records[place + 1 :]]


def cut(records: list[Record], place: int) -> list[Record]:
    return records[: place + 1]


def hashed_anew(records: list[Record], place: int) -> list[Record]:
    """Everything from here on as if it had been written so, but for the signature, which needs the key."""
    rows = [record.parse() for record in records]
    rows[place]["who"] = "somebody else entirely"
    made: list[Record] = []
    head = EMPTY
    for row in rows:
        entry = Entry(row["time"], row["kind"], row["who"], row.get("tenant"), row.get("ids", {}), row.get("data", {}))
        made += follow(head, [entry])
        head = Head(made[-1].seq, made[-1].hash, 0, "")
    return made


@pytest.mark.parametrize("change", [removed, swapped, doubled, cut, hashed_anew])
@settings(deadline=None)
@given(contents=logs, data=st.data())
def test_any_change_of_the_order_is_seen(
    change: Callable[[list[Record], int], list[Record]], contents: list[Entry], data: st.DataObject
) -> None:
    records = chain(contents)
    place = data.draw(st.integers(0, len(records) - 2))
    changed = change(records, place)
    head = changed[-1] if change is hashed_anew else records[-1]
    assert not judge(changed, head).ok


@settings(deadline=None)
@given(entries)
def test_a_record_has_one_spelling(entry: Entry) -> None:
    (record,) = follow(EMPTY, [entry])
    assert canonical(record.parse()) == record.body
    assert record.body.isascii()
    assert read_record(record.body, record.hash) == record
