"""The DNS server of a sandbox. It sends no queries: an allowed name gets an address that only the gateway understands.

An address from 127.64.0.0/10 means nothing outside. A connection to one tells which name the program meant, whatever
that name leads to now. Answers hold IPv4 addresses alone; for everything else a name has nothing, so that no key for
encrypted handshakes (ECH) and no other endpoint is ever learned. A refused name does not exist.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum
from ipaddress import IPv4Address, IPv4Network

from fumehood.egress.limits import GatewayLimits, TokenBucket
from fumehood.egress.log import MUST_NOT_LEAVE
from fumehood.policy.decision import Decision, deny
from fumehood.policy.egress import Attempt, Rulebook

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
class DnsQuery:
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


def parse_query(message: bytes) -> DnsQuery:
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
    return DnsQuery(identity, flags, name, kind, message[_HEADER.size : end])


def reply(query: DnsQuery, code: Code = Code.NO_ERROR) -> bytes:
    """An answer without records: an error, or a name that has nothing of that kind."""
    return _head(query.identity, query.flags, code, 1, 0) + query.question


def reply_with_address(query: DnsQuery, address: IPv4Address, ttl_seconds: int) -> bytes:
    return _reply_with_record(query, A, ttl_seconds, address.packed)


def reply_with_name(query: DnsQuery, name: str, ttl_seconds: int) -> bytes:
    labels = [label.encode("ascii") for label in name.split(".")]
    data = b"".join(bytes([len(label)]) + label for label in labels) + b"\0"
    return _reply_with_record(query, PTR, ttl_seconds, data)


def _reply_with_record(query: DnsQuery, kind: int, ttl_seconds: int, data: bytes) -> bytes:
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


_BLOCK = IPv4Network("127.64.0.0/10")


class NameTable:
    """Thread-safe: questions arrive in any thread. A name keeps its address for as long as the sandbox is open."""

    def __init__(self, limits: GatewayLimits) -> None:
        self._most = limits.names
        self._new = TokenBucket(limits.new_names, limits.new_names_a_second)
        self._addresses: dict[str, IPv4Address] = {}
        self._names: dict[str, str] = {}
        self._lock = threading.Lock()

    def admit(self, name: str, *, listed: bool) -> tuple[IPv4Address | None, str]:
        """The address of an allowed name, or None and why it may not have one. `listed`: a rule spells it out."""
        with self._lock:
            if (known := self._addresses.get(name)) is not None:
                return known, ""
            if len(self._addresses) >= self._most:
                return None, f"the sandbox has used {self._most} names already, which is the most it may"
            if not listed and not self._new.take():
                return None, "too many new names below a wildcard in a short time, which could carry data out"
            address = _BLOCK[len(self._addresses) + 1]
            self._addresses[name], self._names[str(address)] = address, name
            return address, ""

    def host_at(self, address: str) -> str:
        """What a program means by an address: the name that it stands for, or the address itself."""
        return self._names.get(address, address)

    def name_at(self, address: str) -> str | None:
        """The name that an address stands for."""
        return self._names.get(address)


TTL_SECONDS = 30
_REVERSE = ".in-addr.arpa"


class DnsServer:
    def __init__(self, book: Callable[[], Rulebook], names: NameTable) -> None:
        self._book, self._names = book, names

    def answer(
        self, message: bytes, tell: Callable[[Decision[Attempt]], None], holds_canary: Callable[[str], bool]
    ) -> bytes | None:
        """The reply to one message, if it deserves one; `tell` hears what was decided on each name."""
        try:
            query = parse_query(message)
        except MalformedQueryError as error:
            return error.reply
        if query.kind == PTR and (name := self._reversed(query.name)) is not None:
            return reply_with_name(query, name, TTL_SECONDS)
        decision = self._book().decide_name(query.name)
        name = decision.attempt.host
        if decision.allowed and holds_canary(name):
            decision = deny(replace(decision.attempt, host="a name"), MUST_NOT_LEAVE, decision.rule)
        if not decision.allowed:
            tell(decision)
            return reply(query, Code.NO_SUCH_NAME)
        address, why = self._names.admit(name, listed=self._book().lists(name))
        if address is None:
            tell(deny(decision.attempt, why, decision.rule))
            return reply(query, Code.REFUSED)
        tell(decision)
        return reply_with_address(query, address, TTL_SECONDS) if query.kind == A else reply(query)

    def _reversed(self, name: str) -> str | None:
        """The host for a reverse look-up of an address that this resolver gave out, or None."""
        if not name.lower().endswith(_REVERSE):
            return None
        return self._names.name_at(".".join(reversed(name[: -len(_REVERSE)].split("."))))
