"""Targets that read what another end sends: programs, servers, clients, other processes. See targets.py."""

from __future__ import annotations

import asyncio
import atexit
from contextlib import suppress
from functools import cache
from ipaddress import IPv4Address

from fumehood.cluster.join import read_token
from fumehood.egress.client_hello import NoHelloError, asks_again, parse_hello
from fumehood.egress.dns import MalformedQueryError, parse_query, reply_with_address
from fumehood.egress.http1 import MalformedMessageError, parse_chunk_size, parse_request, parse_response, serialise
from fumehood.errors import MessageError, UsageError
from fumehood.guest.contract.bundle import decode_bundle
from fumehood.guest.contract.frames import Decoder, FrameError, Header, encode
from fumehood.remote.carrier import CarrierLostError
from fumehood.remote.link import Link
from fumehood.remote.options import pack_request, unpack_request
from fumehood.runtime.envelopes import Envelope, ReplyEnvelope
from fumehood.server.e2b.envelopes import EnvelopeReader
from fumehood.server.e2b.errors import BodyError

_METHODS = ("GET", "HEAD", "CONNECT")


def http_request(data: bytes) -> None:
    try:
        request = parse_request(data)
    except MalformedMessageError:
        return
    first = f"{request.method} {request.target} HTTP/1.{request.version}"
    assert parse_request(serialise(first, request.headers).removesuffix(b"\r\n\r\n")) == request


def http_response(data: bytes) -> None:
    for method in _METHODS:
        with suppress(MalformedMessageError):
            parse_response(data, method)
    with suppress(MalformedMessageError):
        assert 0 <= parse_chunk_size(data) < 1 << 64


def tls_hello(data: bytes) -> None:
    with suppress(NoHelloError):
        whole = parse_hello(data)
        # More bytes behind it change nothing about the first message.
        if whole is not None:
            assert parse_hello(data + b"\x17\x03\x03\x00\x00") == whole
            assert whole.size <= len(data)
    with suppress(NoHelloError):
        parse_hello(data, is_second=True)
    with suppress(NoHelloError):
        asks_again(data)


def dns_query(data: bytes) -> None:
    try:
        query = parse_query(data)
    except MalformedQueryError:
        return
    assert reply_with_address(query, IPv4Address("198.18.0.1"), 5).startswith(data[:2])


def guest_frames(data: bytes) -> None:
    """In one piece and in two: the same messages, or the same error."""
    assert _decoded([data]) == _decoded([data[: len(data) // 2], data[len(data) // 2 :]])


def _decoded(pieces: list[bytes]) -> list[object]:
    decoder, found = Decoder(), list[object]()
    try:
        for piece in pieces:
            decoder.feed(piece)
            while (message := decoder.next()) is not None:
                found.append(message)
                assert encode(*message)
                with suppress(FrameError):
                    decode_bundle(*message)
    except FrameError as error:
        found.append(str(error))
    return found


class _Carrier:
    """Brings the bytes of the other end in two pieces, and is then lost."""

    def __init__(self, data: bytes) -> None:
        self._pieces = [data[: len(data) // 3], data[len(data) // 3 :]]

    async def send(self, data: bytes) -> None:
        pass

    async def receive(self) -> bytes:
        if not self._pieces:
            raise CarrierLostError
        return self._pieces.pop(0)

    async def close(self) -> None:
        pass


def remote_link(data: bytes) -> None:
    """The messages of the other end arrive once and in order, or the link is given up."""
    numbers: list[int] = []

    def deliver(header: Header, body: bytes, header_bytes: int) -> None:
        numbers.append(link.received)
        with suppress(FrameError):
            code, options = unpack_request(header, body)
            assert unpack_request(*pack_request(code, options)) == (code, options)

    link = Link(deliver)
    link.post({"call": 1})
    with suppress(FrameError):
        _loop().run_until_complete(link.use(_Carrier(data), 0))
    assert numbers == list(range(1, len(numbers) + 1))


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    atexit.register(loop.close)
    return loop


def agent_envelope(data: bytes) -> None:
    with suppress(MessageError):
        envelope = Envelope.from_bytes(data, 0.0, 0.0)
        again = Envelope.from_bytes(envelope.to_bytes(0.0, 0.0), 0.0, 0.0)
        assert (again.message_id, again.payload, again.to) == (envelope.message_id, envelope.payload, envelope.to)
    with suppress(MessageError):
        reply = ReplyEnvelope.from_bytes(data)
        assert ReplyEnvelope.from_bytes(reply.to_bytes()) == reply


def join_token(data: bytes) -> None:
    with suppress(UsageError):
        read_token("hoodjoin_" + data.decode("latin-1"))


def e2b_messages(data: bytes) -> None:
    """In one piece and in three: the same messages, or the same error."""
    third = len(data) // 3
    assert _e2b([data]) == _e2b([data[:third], data[third : 2 * third], data[2 * third :]])


def _e2b(pieces: list[bytes]) -> list[object]:
    reader, found = EnvelopeReader(), list[object]()
    try:
        for piece in pieces:
            reader.feed(piece)
            while (message := reader.next()) is not None:
                found.append(repr(message))
        reader.finish()
    except BodyError as error:
        found.append(str(error))
    return found
