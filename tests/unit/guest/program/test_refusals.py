"""A refusal is read from a channel that a program may hold: nothing that it writes there holds up the reader."""

from __future__ import annotations

import json
import os
import socket

import pytest

from fumehood.guest.contract import wire
from fumehood.guest.program.refusals import read_refusal


@pytest.mark.parametrize("word", [{"refused": "why"}, {"failed": "a step", "detail": "why"}])
def test_a_refusal_arrives(word: dict[str, str]) -> None:
    ours, theirs = wire.socket_pair()
    with ours, theirs:
        wire.send(theirs, word)
        assert read_refusal(ours) == word


@pytest.mark.parametrize(
    "word",
    [b"", b"\xff", b"[" * 60_000, b"1", b"[]", b'{"refused": "a", "detail": "b"}', b'{"status": 0}', b"x" * 65_537],
)
def test_a_word_of_another_form_is_none(word: bytes) -> None:
    ours, theirs = wire.socket_pair()
    with ours, theirs:
        theirs.send(word)
        assert read_refusal(ours) is None


def test_a_reader_does_not_wait_for_who_holds_the_channel_and_is_silent() -> None:
    ours, theirs = wire.socket_pair()
    with ours, theirs:
        assert read_refusal(ours) is None


def test_an_endless_refusal_is_cut() -> None:
    ours, theirs = wire.socket_pair()
    with ours, theirs:
        theirs.send(json.dumps({"refused": "x" * 50_000}).encode())
        assert len((read_refusal(ours) or {})["refused"]) == 4096


def test_descriptors_that_come_along_are_not_taken() -> None:
    ours, theirs = wire.socket_pair()
    with ours, theirs:
        before = os.listdir("/proc/self/fd")
        socket.send_fds(theirs, [b'{"refused": "why"}'], [theirs.fileno()] * 100)
        assert read_refusal(ours) == {"refused": "why"}
        assert os.listdir("/proc/self/fd") == before
