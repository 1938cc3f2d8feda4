"""DNS messages, as far as a stub needs them: one question in, one short answer out. No I/O."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from ipaddress import IPv4Address

A = 1
PTR = 12
MOST_BYTES = 512
_IN = 1
_OPT_START = b"\0\0\x29"
_HEADER = struct.Struct(">6H")
_QUESTION_END = struct.Struct(">HH")
_RECORD = struct.Struct(">HHHLH")
_NAME_OF_QUESTION = 0xC00C
_RESPONSE, _RECURSION_DESIRED, _RECURSION_AVAILABLE = 0x8000, 0x0100, 0x0080


class Code(IntEnum):
    NO_ERROR = 0
    FORMAT_ERROR = 1
    NO_SUCH_NAME = 3
    NOT_IMPLEMENTED = 4
    REFUSED = 5


@dataclass(frozen=True, slots=True)
class Query:
    """`name` is as it was sent, without its last dot; a byte that is no ASCII is one character of it."""

    identity: int
    flags: int
    name: str
    kind: int
    question: bytes


class MalformedQueryError(ValueError):
    """A message that is no question we answer; `reply` is what its sender gets, or None."""

    def __init__(self, code: Code, message: bytes) -> None:
        super().__init__(code.name)
        self.reply = None if len(message) < 2 else _head(int.from_bytes(message[:2], "big"), 0, code, 0, 0)


def parse_query(message: bytes) -> Query:
    """Exactly one question of class IN, and nothing else but options (EDNS), which are ignored."""
    if not _HEADER.size < len(message) <= MOST_BYTES:
        raise MalformedQueryError(Code.FORMAT_ERROR, message)
    identity, flags, questions, answers, authorities, extras = _HEADER.unpack_from(message)
    if flags & _RESPONSE:
        raise MalformedQueryError(Code.FORMAT_ERROR, b"")
    if flags >> 11 & 0xF:
        raise MalformedQueryError(Code.NOT_IMPLEMENTED, message)
    if questions != 1 or answers or authorities or extras > 1:
        raise MalformedQueryError(Code.FORMAT_ERROR, message)
    name, offset = _name(message)
    end = offset + _QUESTION_END.size
    rest = message[end:]
    if len(message) < end or (not rest.startswith(_OPT_START) if extras else rest):
        raise MalformedQueryError(Code.FORMAT_ERROR, message)
    kind, family = _QUESTION_END.unpack_from(message, offset)
    if family != _IN:
        raise MalformedQueryError(Code.REFUSED, message)
    return Query(identity, flags, name, kind, message[_HEADER.size : end])


def reply(query: Query, code: Code = Code.NO_ERROR) -> bytes:
    """An answer without records: an error, or a name that has nothing of that kind."""
    return _head(query.identity, query.flags, code, 1, 0) + query.question


def reply_with_address(query: Query, address: IPv4Address, ttl_seconds: int) -> bytes:
    return _reply_with_record(query, A, ttl_seconds, address.packed)


def reply_with_name(query: Query, name: str, ttl_seconds: int) -> bytes:
    labels = [label.encode("ascii") for label in name.split(".")]
    data = b"".join(bytes([len(label)]) + label for label in labels) + b"\0"
    return _reply_with_record(query, PTR, ttl_seconds, data)


def _reply_with_record(query: Query, kind: int, ttl_seconds: int, data: bytes) -> bytes:
    record = _RECORD.pack(_NAME_OF_QUESTION, kind, _IN, ttl_seconds, len(data))
    return _head(query.identity, query.flags, Code.NO_ERROR, 1, 1) + query.question + record + data


def _head(identity: int, flags: int, code: Code, questions: int, answers: int) -> bytes:
    kept = flags & _RECURSION_DESIRED
    return _HEADER.pack(identity, _RESPONSE | kept | _RECURSION_AVAILABLE | code, questions, answers, 0, 0)


def _name(message: bytes) -> tuple[str, int]:
    """The name of the question and where it ends. Compression makes no sense in a first name and is refused."""
    labels: list[str] = []
    offset = _HEADER.size
    while offset < len(message) and (length := message[offset]):
        if length > 63 or offset - _HEADER.size + length > 253:
            raise MalformedQueryError(Code.FORMAT_ERROR, message)
        label = message[offset + 1 : offset + 1 + length].decode("latin-1")
        # A dot inside of a label would make two names look alike.
        labels.append(label.replace(".", "\\."))
        offset += 1 + length
    if offset >= len(message):
        raise MalformedQueryError(Code.FORMAT_ERROR, message)
    return ".".join(labels), offset + 1
