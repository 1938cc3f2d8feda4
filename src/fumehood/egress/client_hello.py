"""The first message of a TLS handshake, read as strictly as servers do, or more. No I/O.

What two readers could take differently (an extension twice, two names, bytes left over) is refused, because the server
behind us is the other reader. A server may ask for that message once more (HelloRetryRequest); it then believes the
second one, which has to be read as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

MOST_BYTES = 16 * 1024
ACCESS_DENIED_ALERT = b"\x15\x03\x03\x00\x02\x02\x31"
_CHANGE_CIPHER_RECORD, _ALERT_RECORD, _HANDSHAKE_RECORD, _DATA_RECORD = 20, 21, 22, 23
_CLIENT_HELLO, _SERVER_HELLO = 1, 2
# What stands where a server's random bytes would: the hash of "HelloRetryRequest" (RFC 8446, 4.1.3).
_RETRY = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")
_RETRY_PLACE = slice(6, 38)
_MOST_RECORD_BYTES = 16 * 1024
# Honest clients need one or two. Bounds the work that a client who sends single bytes can cause.
_MOST_RECORDS = 16
_SERVER_NAME, _PROTOCOLS = 0, 16
# Encrypted Client Hello, its outer extensions, and the draft before it (ESNI).
_ENCRYPTED = frozenset({0xFE0D, 0xFD00, 0xFFCE})


class NoHelloError(ValueError):
    """What was sent is no TLS handshake, or none that can be read in one way only; the text says which."""


@dataclass(frozen=True, slots=True)
class ClientHello:
    server_name: str | None
    encrypted: bool
    protocols: tuple[str, ...]
    size: int = field(default=0, compare=False)
    """Bytes of all records up to the end of the message; what follows has not been read."""


def parse_hello(data: bytes, *, is_second: bool = False) -> ClientHello | None:
    """The first handshake message in these bytes; None as long as it is not complete.

    Before a second one a client may send what servers skip: a change of ciphers that means nothing, and early data.
    """
    if len(data) > MOST_BYTES:
        raise NoHelloError("the TLS handshake begins with too long a message")
    message = b""
    offset = 0
    for _ in range(_MOST_RECORDS):
        header = data[offset : offset + 5]
        if is_second and not message and header[:1] in (bytes([_CHANGE_CIPHER_RECORD]), bytes([_DATA_RECORD])):
            if len(header) < 5:
                return None
            offset += 5 + int.from_bytes(header[3:], "big")
            continue
        if header and (header[0] != _HANDSHAKE_RECORD or header[1:2] not in (b"", b"\x03")):
            raise NoHelloError("what was sent is no TLS handshake")
        if len(header) < 5:
            return None
        length = int.from_bytes(header[3:], "big")
        if not 0 < length <= _MOST_RECORD_BYTES:
            raise NoHelloError("the TLS handshake is malformed")
        message += data[offset + 5 : offset + 5 + length]
        offset += 5 + length
        if message and message[0] != _CLIENT_HELLO:
            raise NoHelloError("the TLS handshake does not begin with a client's message")
        if offset > len(data):
            return None  # also when the message is there: its record may hold another one behind it
        if _is_whole(message):
            return replace(_parse_message(message), size=offset)
    raise NoHelloError("the TLS handshake is cut into too many pieces")


def asks_again(data: bytes) -> bool | None:
    """Whether a server's first bytes ask the client for a second first message; None as long as that is open.

    It is open until all of such a message is there: a client that has only its beginning does not answer.
    """
    message = b""
    offset = 0
    while len(header := data[offset : offset + 5]) == 5:
        length = int.from_bytes(header[3:], "big")
        if header[0] == _HANDSHAKE_RECORD:
            message += data[offset + 5 : offset + 5 + length]
        elif header[0] not in (_ALERT_RECORD, _CHANGE_CIPHER_RECORD):  # a warning may come first
            return False
        offset += 5 + length
        if len(message) >= _RETRY_PLACE.stop:
            if message[0] != _SERVER_HELLO or message[_RETRY_PLACE] != _RETRY:
                return False
            if offset <= len(data) and _is_whole(message):
                return True
    if len(data) > MOST_BYTES:
        raise NoHelloError("the server does not get to the point of its handshake")
    return None


def _is_whole(message: bytes) -> bool:
    return len(message) >= 4 and len(message) >= 4 + int.from_bytes(message[1:4], "big")


def _parse_message(message: bytes) -> ClientHello:
    length = int.from_bytes(message[1:4], "big")
    if len(message) != 4 + length:
        # A second message in the same record would be encrypted by now, so an honest client has none.
        raise NoHelloError("the TLS handshake is malformed")
    body = _Fields(message[4:])
    body.take(2 + 32)
    body.vector(1)
    body.vector(2)
    body.vector(1)
    extensions = _Fields(body.vector(2)) if body.left else _Fields(b"")
    body.end()
    found: dict[int, bytes] = {}
    while extensions.left:
        kind = extensions.number(2)
        if kind in found:
            raise NoHelloError("the TLS handshake has an extension twice")
        found[kind] = extensions.vector(2)
    return ClientHello(_server_name(found), not _ENCRYPTED.isdisjoint(found), _protocols(found))


def _server_name(extensions: dict[int, bytes]) -> str | None:
    if (extension := extensions.get(_SERVER_NAME)) is None:
        return None
    outer = _Fields(extension)
    names = _Fields(outer.vector(2))
    outer.end()
    kind, name = names.number(1), names.vector(2)
    names.end()
    if kind != 0 or not name:
        raise NoHelloError("the TLS handshake has a strange server name")
    return name.decode("latin-1")


def _protocols(extensions: dict[int, bytes]) -> tuple[str, ...]:
    if (extension := extensions.get(_PROTOCOLS)) is None:
        return ()
    outer = _Fields(extension)
    names = _Fields(outer.vector(2))
    outer.end()
    found: list[str] = []
    while names.left:
        found.append(names.vector(1).decode("latin-1"))
    return tuple(found)


class _Fields:
    """Bytes that are taken from the front; taking more than there are is a malformed handshake."""

    def __init__(self, data: bytes) -> None:
        self._data, self._offset = data, 0

    @property
    def left(self) -> int:
        return len(self._data) - self._offset

    def take(self, count: int) -> bytes:
        if count > self.left:
            raise NoHelloError("the TLS handshake is malformed")
        self._offset += count
        return self._data[self._offset - count : self._offset]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def vector(self, size: int) -> bytes:
        """A length of so many bytes, and that many bytes."""
        return self.take(self.number(size))

    def end(self) -> None:
        if self.left:
            raise NoHelloError("the TLS handshake has bytes left over")
