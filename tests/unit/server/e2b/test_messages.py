"""Messages and bodies of E2B's protocol from a client that lies: about lengths, about what it sends, about its time."""

from __future__ import annotations

import asyncio
import gzip
import logging
import struct
from collections.abc import AsyncGenerator, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.types import Message

from fumehood.server.e2b.bodies import chunks_of, parse_object, read_json, unpacked
from fumehood.server.e2b.envelopes import EnvelopeReader, envelope, read_envelope
from fumehood.server.e2b.errors import BodyError, failure_of
from fumehood.server.e2b.paths import inner_path, outer_path

pytestmark = pytest.mark.anyio


def request(chunks: Iterable[bytes], *, ends: bool = True) -> Request:
    """One whose body comes in these pieces; without an end it stays away after the last."""
    pieces = list(chunks)

    async def receive() -> Message:
        if pieces:
            piece = pieces.pop(0)
            return {"type": "http.request", "body": piece, "more_body": bool(pieces) or not ends}
        if ends:
            return {"type": "http.request", "body": b"", "more_body": False}
        await asyncio.Event().wait()
        raise AssertionError

    return Request({"type": "http", "method": "POST", "headers": []}, receive)


async def chunked(*chunks: bytes) -> AsyncGenerator[bytes, None]:
    for chunk in chunks:
        yield chunk


@given(st.lists(st.dictionaries(st.text(max_size=5), st.text(max_size=20), max_size=3)), st.integers(1, 40))
def test_messages_arrive_whole_however_they_are_cut(messages: list[dict[str, str]], size: int) -> None:
    data, reader, seen = b"".join(map(envelope, messages)), EnvelopeReader(), list[object]()
    for start in range(0, len(data), size):
        reader.feed(data[start : start + size])
        while (message := reader.next()) is not None:
            seen.append(message)
    reader.finish()
    assert seen == messages


async def test_a_length_is_not_believed() -> None:
    too_long = struct.pack(">BI", 0, 2**32 - 1) + b"{}"
    with pytest.raises(BodyError, match="more than 4M"):
        await read_envelope(request([too_long]))
    with pytest.raises(BodyError, match="ends within a message"):
        await read_envelope(request([struct.pack(">BI", 0, 100) + b"{}"]))
    with pytest.raises(BodyError, match="no message"):
        await read_envelope(request([b""]))
    with pytest.raises(BodyError, match="compressed"):
        await read_envelope(request([struct.pack(">BI", 1, 2) + b"{}"]))


@pytest.mark.parametrize("body", [b"[1]", b"{", b'"x"', b"[" * 100_000, b'{"a":' * 50 + b"1" + b"}" * 50, b"\xff"])
def test_what_is_not_a_plain_object_is_refused(body: bytes) -> None:
    with pytest.raises(BodyError):
        parse_object(body)


async def test_a_body_is_bounded_in_bytes_and_in_silence() -> None:
    with pytest.raises(BodyError, match="more than 10"):
        await read_json(request([b"x" * 6, b"y" * 6]), limit=10)
    with pytest.raises(BodyError, match="nothing of the body came"):
        [chunk async for chunk in chunks_of(request([b"x"], ends=False), 10, seconds=0.01)]


async def _measure(chunks: AsyncGenerator[bytes, None], sizes: list[int]) -> None:
    async for chunk in chunks:
        sizes += [len(chunk)]


async def test_a_small_body_that_unpacks_to_much_is_stopped_on_the_way() -> None:
    bomb = gzip.compress(bytes(300_000_000), 9)
    assert len(bomb) < 300_000
    sizes: list[int] = []

    with pytest.raises(BodyError, match="more than 1M"):
        await _measure(unpacked(chunked(bomb), 2**20), sizes)
    assert max(sizes) <= 2**18
    assert sum(sizes) <= 2**20


@pytest.mark.parametrize(
    "packed", [b"plain", gzip.compress(b"x" * 1000, mtime=0)[:-9], gzip.compress(b"x", mtime=0) + b"more"]
)
async def test_what_is_not_one_whole_gzip_body_is_refused(packed: bytes) -> None:
    with pytest.raises(BodyError):
        [chunk async for chunk in unpacked(chunked(packed), 10_000)]


def test_paths_have_two_spellings_of_one_place() -> None:
    for path in (
        "a/b",
        "/home/user/a/b",
        "./a//b",
        "~/a/b",
        "/home/user/x/../a/b",
        "//home/user/a/b",
        "/workspace/a/b",
    ):
        assert inner_path(path) == "/workspace/a/b"
    assert inner_path("") == inner_path("~") == "/workspace"
    assert inner_path("../../etc/passwd") == "/etc/passwd"
    assert inner_path("/home/username") == "/home/username"
    assert [outer_path(path) for path in ("/workspace/a", "a", "/tmp/a", "/workspaces")] == [
        "/home/user/a",
        "/home/user/a",
        "/tmp/a",
        "/workspaces",
    ]


@given(st.text())
def test_no_path_is_an_unknown_error(path: str) -> None:
    assert inner_path(path).startswith("/")


async def test_clients_that_leave_in_the_middle_of_a_body_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def receive() -> Message:
        return {"type": "http.disconnect"}

    with caplog.at_level(logging.DEBUG), pytest.raises(ConnectionAbortedError) as left:
        await read_json(Request({"type": "http", "method": "POST", "headers": []}, receive))
    assert (failure_of(left.value).status, caplog.records) == (499, [])
