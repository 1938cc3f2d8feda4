"""Messages are known by name, and are what their type says, when they are sent and when they arrive."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pytest
from pydantic import BaseModel

from fumehood import UsageError
from fumehood.runtime import AgentId, Message, MessageError, MessageTypes, RuntimeLimits, TopicId
from fumehood.runtime.envelopes import Envelope, ReplyEnvelope, ReplyFailure
from fumehood.runtime.messages import Payload


class Parcel(Message):
    weight: float
    content: bytes = b""
    packed: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    labels: tuple[str, ...] = ()


def types(*types: type[object], most_bytes: int = 1000) -> MessageTypes:
    made = MessageTypes(most_bytes)
    for each in types:
        made.add(each)
    return made


def test_whatever_a_field_may_hold_comes_back_as_it_went_in() -> None:
    known = types(Parcel)
    for parcel in (
        Parcel(weight=1.5, content=b"\xff\x00", labels=("a", "\u2028")),
        Parcel(weight=math.inf),
        Parcel(weight=1e300),
    ):
        again = known.decode(known.encode(parcel))
        assert again == parcel
        assert again is not parcel


def test_a_message_has_the_name_of_its_class_or_one_of_its_own() -> None:
    class Old(Message, name="parcel.v1"):
        pass

    assert types(Parcel, Old).names() == ["Parcel", "parcel.v1"]
    assert types(Old).encode(Old()) == Payload("parcel.v1", b"{}")


def test_a_second_type_of_the_same_name_is_refused_whatever_its_shape() -> None:
    known = types(Parcel)

    def another() -> type[Message]:
        class Parcel(Message):
            weight: str

        return Parcel

    with pytest.raises(UsageError, match=r"there is a message 'Parcel' already.*give .*another name"):
        known.add(another())
    known.add(Parcel)
    assert known.decode(Payload("Parcel", b'{"weight": 1}')) == Parcel(weight=1)
    with pytest.raises(UsageError, match="has one name only"):
        known.add(Parcel, "other")


def test_a_type_that_is_not_whole_is_no_message() -> None:
    class Broken(Message):
        part: Missing  # noqa: F821  # type: ignore[name-defined]

    with pytest.raises(UsageError, match=r"Broken cannot be a message: .*Missing"):
        types(Broken)


@dataclass
class Melting:
    x: int


class Soft(BaseModel):
    x: int


@pytest.mark.parametrize(
    ("type", "complaint"),
    [(Melting, "it is not frozen"), (Soft, "it is not frozen"), (str, "neither a pydantic model nor a dataclass")],
)
def test_what_could_change_on_its_way_is_no_message(type: type[object], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        types(type)


@dataclass(frozen=True)
class Raw:
    data: bytes
    number: float = 0.0


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        (object(), "object is not a known message"),
        (Parcel.model_construct(weight="heavy"), "the message Parcel cannot be written as JSON"),
        (Parcel(weight=1, content=b"x" * 1000), r"the message Parcel has 1\d\d\d bytes, and 1000 are the limit"),
        (Raw(b"\xff"), "the message Raw cannot be written as JSON: .*utf-8"),
        (Raw(b"", math.nan), "the message Raw is not valid: number: Input should be a valid number"),
    ],
)
def test_what_cannot_be_sent_is_one_clear_error(message: object, complaint: str) -> None:
    with pytest.raises(MessageError, match=complaint):
        types(Parcel, Raw).encode(message)


class Child(Parcel):
    pass


def test_a_child_of_a_known_type_is_not_known_by_that() -> None:
    with pytest.raises(MessageError, match="Child is not a known message"):
        types(Parcel).encode(Child(weight=1))


@pytest.mark.parametrize(
    ("payload", "complaint"),
    [
        (Payload("Letter", b"{}"), "the message 'Letter' is not known"),
        (Payload("Parcel", b"{}"), "the message Parcel is not valid: weight: Field required"),
        (Payload("Parcel", b'{"weight": 1, "colour": 2}'), "colour: Extra inputs are not permitted"),
        (Payload("Parcel", b"\xff"), "the message Parcel is not valid"),
        (Payload("Parcel", b"[" * 900), "the message Parcel is not valid"),
        (Payload("Parcel", b" " * 2000), "2000 bytes"),
    ],
)
def test_what_arrives_is_checked_as_if_a_stranger_had_sent_it(payload: Payload, complaint: str) -> None:
    with pytest.raises(MessageError, match=complaint):
        types(Parcel).decode(payload)


ENVELOPE = Envelope(
    message_id="msg_1",
    payload=Payload("Parcel", '{"weight":1,"labels":["ä"]}'.encode()),
    sender=AgentId("a", "x/y"),
    to=AgentId("b"),
    topic=TopicId("news.a", "s"),
    cause="msg_0",
    hops=3,
    deadline=50.0,
)


def test_an_envelope_is_the_same_after_a_journey_as_bytes() -> None:
    assert Envelope.from_bytes(ENVELOPE.to_bytes(now=10, wall=0), now=10, wall=0) == ENVELOPE
    # Another machine has another monotonic clock: what is left of the time is the same.
    assert Envelope.from_bytes(ENVELOPE.to_bytes(now=10, wall=0), now=1000, wall=0).deadline == 1040


def test_the_time_that_an_envelope_was_on_its_way_counts() -> None:
    data = ENVELOPE.to_bytes(now=10, wall=100)
    assert Envelope.from_bytes(data, now=1000, wall=115).deadline == 1025
    assert Envelope.from_bytes(data, now=1000, wall=150).deadline < 1000
    # A clock that goes behind gives nobody more time than there was.
    assert Envelope.from_bytes(data, now=1000, wall=50).deadline == 1040


def test_a_message_is_the_same_bytes_on_its_way() -> None:
    payload = Payload("Parcel", ('{"labels":["' + "äöü" * 1000 + '"]}').encode())
    envelope = replace(ENVELOPE, payload=payload)
    data = envelope.to_bytes(now=0, wall=0)
    assert data.endswith(payload.data)
    assert len(data) < len(payload.data) + 400
    assert ReplyEnvelope("msg_1", AgentId("b"), payload).to_bytes().endswith(payload.data)


@pytest.mark.parametrize(
    "answer",
    [
        ReplyEnvelope("msg_1", AgentId("b")),
        ReplyEnvelope("msg_1", AgentId("b"), Payload("Parcel", b'{"weight":1}')),
        ReplyEnvelope("msg_1", AgentId("b"), failure=ReplyFailure("refused", "no")),
    ],
)
def test_an_answer_is_the_same_after_a_journey_as_bytes(answer: ReplyEnvelope) -> None:
    assert ReplyEnvelope.from_bytes(answer.to_bytes()) == answer


@pytest.mark.parametrize(
    "change",
    [
        (b'"v": 3', b'"v": 1'),
        (b'"hops": 3', b'"hops": "3"'),
        (b'"to": "b/default"', b'"to": "b\\u0000/x"'),
        (b'"from": "a/x/y"', b'"from": 7'),
        (b'"id"', b'"it"'),
        (b"{", b"["),
        (b'"until": ', b'"until": "soon", "x": '),
        (b'"chain": []', b'"chain": [7]'),
        *(
            (b'"%s": ' % name, b'"%s": %s, "x": ' % (name, value))
            for name in (b"seconds", b"until")
            for value in (b"NaN", b"Infinity", b"-Infinity", b"1e999", b"1" + b"0" * 400)
        ),
    ],
)
def test_bytes_that_are_no_envelope_are_one_clear_error(change: tuple[bytes, bytes]) -> None:
    data = ENVELOPE.to_bytes(now=0, wall=0)
    assert change[0] in data
    with pytest.raises(MessageError):
        Envelope.from_bytes(data.replace(*change, 1), now=0, wall=0)


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"null", b'{"v": 3}', b'{"v": 3, "id": "m", "by": "", "failure": ["", ""]}']
)
def test_bytes_that_are_no_answer_are_one_clear_error(data: bytes) -> None:
    with pytest.raises(MessageError):
        ReplyEnvelope.from_bytes(data)


@pytest.mark.parametrize("value", [0, -1, float("inf"), float("nan")])
def test_there_is_no_unlimited(value: float) -> None:
    with pytest.raises(UsageError, match=r"RuntimeLimits\.hops must be more than 0"):
        RuntimeLimits(hops=value)  # type: ignore[arg-type]
