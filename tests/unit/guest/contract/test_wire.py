"""Messages and sealed files: what one end sends the other end gets, whole, once, and unchangeable."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fumehood.guest.contract import wire

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10)
messages = st.dictionaries(st.text(), values, max_size=5)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = wire.socket_pair()
    with ours, theirs:
        yield ours, theirs


@given(st.lists(messages, min_size=1, max_size=3))
def test_messages_arrive_as_they_were_sent_and_keep_apart(sent: list[wire.Message]) -> None:
    ours, theirs = wire.socket_pair()
    with ours, theirs:
        for message in sent:
            wire.send(ours, message)
        assert [wire.receive(theirs) for _ in sent] == [(message, []) for message in sent]


@pytest.mark.parametrize("count", [0, 1, 6, wire.MAX_DESCRIPTORS])
def test_descriptors_travel_in_order_and_are_not_inherited(
    pair: tuple[socket.socket, socket.socket], count: int
) -> None:
    ours, theirs = pair
    pipes = [os.pipe() for _ in range(count)]
    wire.send(ours, {"n": count}, tuple(write for _, write in pipes))
    message, received = wire.receive(theirs)
    assert (message, len(received)) == ({"n": count}, count)
    for number, ((read, write), descriptor) in enumerate(zip(pipes, received, strict=True)):
        assert not os.get_inheritable(descriptor)
        os.write(descriptor, b"%d" % number)
        assert os.read(read, 9) == b"%d" % number
        wire.close_all([read, write, descriptor])


def test_the_sockets_are_not_inherited(pair: tuple[socket.socket, socket.socket]) -> None:
    assert [end.get_inheritable() for end in pair] == [False, False]


def test_the_end_of_the_stream_is_no_message(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    wire.send(ours, {"last": True})
    ours.close()
    assert wire.receive(theirs) == ({"last": True}, [])
    assert wire.receive(theirs) == (None, [])


def test_sending_to_nobody_is_an_error(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    theirs.close()
    with pytest.raises(BrokenPipeError):
        wire.send(ours, {})


def test_a_message_that_is_too_large_is_refused_whole(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    wire.send(ours, {"x": "y" * wire.MAX_MESSAGE_BYTES})
    with pytest.raises(ValueError, match="larger than the protocol allows"):
        wire.receive(theirs)
    wire.send(ours, {"next": 1})
    assert wire.receive(theirs) == ({"next": 1}, [])


def test_more_descriptors_than_the_protocol_knows_are_refused(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    before = len(os.listdir("/proc/self/fd"))
    wire.send(ours, {}, (0,) * (wire.MAX_DESCRIPTORS + 8))
    with pytest.raises(ValueError, match="larger than the protocol allows"):
        wire.receive(theirs)
    assert len(os.listdir("/proc/self/fd")) == before


@given(messages, st.binary())
def test_a_sealed_file_holds_header_and_body(header: wire.Message, body: bytes) -> None:
    descriptor = wire.sealed_file(header, body)
    try:
        assert wire.read_sealed_file(descriptor) == (header, body)
        assert wire.read_sealed_file(descriptor) == (header, body)  # reading moves nothing
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("body", [b"", b"\n", b"\n\n{}\n", b'{"not": "the header"}\n', b"\0" * 10, b"x" * 5_000_000])
def test_a_body_of_any_kind_is_kept_apart_from_the_header(body: bytes) -> None:
    descriptor = wire.sealed_file({"text": "line\nbreak"}, body)
    try:
        assert wire.read_sealed_file(descriptor) == ({"text": "line\nbreak"}, body)
    finally:
        os.close(descriptor)


def test_a_sealed_file_cannot_be_changed_by_anybody() -> None:
    descriptor = wire.sealed_file({"a": 1}, b"body")
    try:
        assert not os.get_inheritable(descriptor)
        for change in (
            lambda: os.pwrite(descriptor, b"x", 0),
            lambda: os.ftruncate(descriptor, 1),
            lambda: os.ftruncate(descriptor, 10_000),
            lambda: fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, 0),
        ):
            with pytest.raises(PermissionError) as caught:
                change()
            assert caught.value.errno == errno.EPERM
        reopened = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY)
        os.close(reopened)
    finally:
        os.close(descriptor)


def test_a_header_that_cannot_be_written_leaves_no_descriptor() -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(TypeError):
        wire.sealed_file({"bytes": b"not json"}, b"")
    assert len(os.listdir("/proc/self/fd")) == before


@given(values)
def test_what_is_parsed_is_what_json_says(value: object) -> None:
    assert wire.parse(json.dumps(value).encode()) == value


@pytest.mark.parametrize("data", [b"", b"{", b"{} {}", b" {}", b"[1]x", b"\xff", b"nothing"])
def test_what_is_not_one_value_of_json_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        wire.parse(data)
