"""Messages on a byte stream, cut into pieces anyhow."""

from __future__ import annotations

import json
import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fumehood.guest.contract.frames import Decoder, FrameError, FrameSocket, encode, is_shallow

HEADERS = st.dictionaries(st.text(max_size=8), st.integers() | st.text(max_size=20) | st.booleans(), max_size=4)
MESSAGES = st.lists(st.tuples(HEADERS, st.binary(max_size=200)), max_size=6)


@given(messages=MESSAGES, piece=st.integers(1, 50))
def test_messages_arrive_whole_however_the_stream_is_cut(
    messages: list[tuple[dict[str, object], bytes]], piece: int
) -> None:
    stream = b"".join(encode(header, body) for header, body in messages)
    decoder, arrived = Decoder(), []
    for start in range(0, len(stream), piece):
        decoder.feed(stream[start : start + piece])
        while (message := decoder.next()) is not None:
            arrived.append(message)
    assert arrived == messages


@pytest.mark.parametrize(
    "stream",
    [
        struct.pack("!II", 2**31, 0),
        struct.pack("!II", 2, 2**31) + b"{}",
        struct.pack("!II", 2, 0) + b"[]",
        struct.pack("!II", 2, 0) + b"{x",
        struct.pack("!II", 2, 0) + b"\xff\xff",
        struct.pack("!II", 200_000, 0) + b"[" * 200_000,
    ],
)
def test_what_does_not_keep_to_the_format_is_refused(stream: bytes) -> None:
    decoder = Decoder()
    decoder.feed(stream)
    with pytest.raises(FrameError):
        decoder.next()


def test_a_message_can_be_skipped_before_it_has_arrived() -> None:
    decoder, stream = Decoder(), encode({"a": 1}, bytes(1000)) + encode({"b": 2}, b"body")
    decoder.feed(stream[:20])
    assert decoder.announced() == len('{"a": 1}') + 1000
    decoder.skip()
    for start in range(20, len(stream), 7):
        decoder.feed(stream[start : start + 7])
    assert decoder.next() == ({"b": 2}, b"body")


@given(st.recursive(st.text(max_size=5), lambda inner: st.lists(inner, max_size=3), max_leaves=20), st.integers(0, 6))
def test_the_depth_of_a_text_is_seen_without_parsing_it(value: object, most: int) -> None:
    text = json.dumps([value] + [[]] * 70).encode()
    assert is_shallow(text, most) == (depth([value]) <= most and most > 1)


def depth(value: object) -> int:
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0


def test_a_text_that_is_made_to_be_slow_is_not() -> None:
    assert is_shallow(b'"' + b'\\"' * 2_000_000 + b"[" * 100, 80)


def test_a_conversation_ends_when_the_other_side_hangs_up() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(encode({"a": 1}, b"body"))
        ours.close()
        conversation = FrameSocket(theirs)
        assert conversation.receive() == ({"a": 1}, b"body")
        assert conversation.receive() is None
