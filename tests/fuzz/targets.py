"""What `make fuzz` feeds with bytes: parsers that read what an attacker wrote.

A target returns, or raises the one error that its parser documents; whatever else it raises is a finding. Where a
parser accepts its input, the target also holds it to a property: what was understood means the same when it is written
down and read again, or read in pieces.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

from fumehood.audit.export import Export
from fumehood.audit.records import read_record
from fumehood.egress.client_hello import NoHelloError, asks_again, parse_hello
from fumehood.egress.dns import MalformedQueryError, parse_query, reply_with_address
from fumehood.egress.http1 import MalformedMessageError, parse_chunk_size, parse_request, parse_response, serialise
from fumehood.errors import PolicyError, UsageError
from fumehood.guest.contract.bundle import decode_bundle
from fumehood.guest.contract.frames import Decoder, FrameError, encode
from fumehood.policy import Commands, Policy
from fumehood.policy.commands import judge

_RULES = Commands(allow=("ls", "git status", "echo *", "grep *", "find *"), deny=("git push",))
_METHODS = ("GET", "HEAD", "CONNECT")
_MOST_LINE = 4096


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


def shell_line(data: bytes) -> None:
    text = data[:_MOST_LINE].decode("utf-8", "surrogateescape")
    for is_bash in (True, False):
        decision = judge(_RULES, text, is_bash=is_bash)
        assert decision.allowed or decision.denied


def policy_file(data: bytes) -> None:
    try:
        policy = Policy.loads(data, base="/")
    except PolicyError:
        return
    assert Policy.loads(data, base="/").digest == policy.digest


def audit_record(data: bytes) -> None:
    with suppress(ValueError):  # which a text that is not UTF-8 is, too
        record = read_record(data.decode(), b"\0" * 32)
        assert read_record(record.body, record.hash) == record


def audit_export(data: bytes) -> None:
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
        file.write(data)
        file.flush()
        with suppress(UsageError):
            export = Export(Path(file.name))
            list(export.records())
            list(export.attachments())


@dataclass(frozen=True)
class Target:
    run: Callable[[bytes], None]
    seeds: tuple[bytes, ...]
    """Inputs from which the first new ones are made."""


TARGETS: Mapping[str, Target] = {
    "http_request": Target(
        http_request,
        (
            b"GET / HTTP/1.1\r\nHost: a",
            b"POST /x?y=1 HTTP/1.1\r\nHost: a:80\r\nContent-Length: 3\r\nExpect: 100-continue",
            b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive, x",
        ),
    ),
    "http_response": Target(
        http_response,
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3", b"HTTP/1.1 101 S\r\nUpgrade: websocket", b"1a", b"HTTP/1.0 304 "),
    ),
    "tls_hello": Target(
        tls_hello,
        (
            bytes.fromhex("1603010030010000") + bytes(44),
            bytes.fromhex("140303000101"),
            b"\x16\x03\x03\x00\x04\x02\0\0\0",
        ),
    ),
    "dns_query": Target(
        dns_query, (bytes.fromhex("123401000001000000000000") + b"\x01a\x07example\x00\x00\x01\x00\x01",)
    ),
    "guest_frames": Target(guest_frames, (encode({"kind": "output"}, b"x"), encode({"display": {}, "metadata": {}}))),
    "shell_line": Target(
        shell_line,
        (
            b'ls -l | grep x && echo "$HOME" > out.txt',
            b"for i in 1 2; do ls; done",
            b"x=$(git status); find . -name '*.py'",
        ),
    ),
    "policy_file": Target(
        policy_file,
        (
            b"network:\n  allow:\n    - {host: a.example, ports: [443], methods: [GET], paths: ['/x/**']}\n",
            b"resources: {memory: 64M, timeout: 5s}\ncommands: {allow: [ls, 'git *']}\n",
            b"filesystem: {mounts: [{source: /x, target: /y}], outputs: ['out/**']}\n",
        ),
    ),
    "audit_record": Target(
        audit_record,
        (b'{"data":{"a":1},"ids":{},"kind":"run.started","seq":3,"time":"2026-01-31T09:30:00.000000Z","who":"x"}',),
    ),
    "audit_export": Target(audit_export, (b'{"hash":"00","record":{}}\n', b'{"attachment":"00","data":""}\n')),
}
