"""The values of a policy's secrets, read once when a sandbox opens, and sent to their host and nowhere else.

Nothing here shows a value: not a repr, not an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from fumehood.errors import UsageError
from fumehood.policy import Policy, Secret
from fumehood.policy.secret import SecretSource
from fumehood.secret_scan.redaction import encodings

# What may stand in a header: a line break would add headers of the secret's own.
_VALUE = re.compile(r"[!-~\u0080-\u00ff](?:[\t -~\u0080-\u00ff]*[!-~\u0080-\u00ff])?")
_SHORTEST_REDACTED = 6
_FEWEST_HELD_BYTES = 64


class Credentials:
    """Name -> value, for one policy."""

    def __init__(self, policy: Policy, source: SecretSource) -> None:
        self._values = {secret.name: _read(secret, source) for secret in policy.secrets}

    def __repr__(self) -> str:
        return f"Credentials({', '.join(self._values)})"

    def headers(self, secrets: Iterable[Secret]) -> list[tuple[str, str]]:
        """The headers that carry these secrets."""
        return [
            (secret.inject.header, secret.inject.format.replace("{}", self._values[secret.name])) for secret in secrets
        ]

    def redactor(self, secrets: Iterable[Secret]) -> Redactor:
        """For what comes back: a server that takes a header for UTF-8 or for Latin-1 may send it in the other one."""
        return Redactor([data for secret in secrets for data in encodings(self._values[secret.name])])


class Redactor:
    """Takes values out of what a server sends back, also where one lies across two pieces. Lengths stay as they are.

    In any case of letters: a server that sends a value back as the name of a header or host may write it in small ones.

    The program sees how much is passed on when, so that must not depend on the values: a program that has its
    guesses sent back by a server would see which of them begin as a value does. A fixed number of last bytes is held
    back, whatever they are; but none before the last end of a line, which is in no value.
    """

    def __init__(self, values: Iterable[bytes]) -> None:
        self._values = [value.lower() for value in values if len(value) >= _SHORTEST_REDACTED]
        longest = max((len(value) for value in self._values), default=0)
        # Rounded up, so that it does not tell how long a value is.
        self._hold_bytes = max(_FEWEST_HELD_BYTES, 1 << longest.bit_length())
        self._held = b""
        self._begun = 0
        """How many of the held bytes are the rest of a value that is passed on already, in black."""

    def head(self, head: bytes) -> bytes:
        """A whole head: its first line, names and values."""
        return _blacken(head, self._spans(head))

    def feed(self, data: bytes) -> bytes:
        """What can be passed on now; the rest waits, because a value could begin in it."""
        if not self._values:
            return data
        data = self._held + data
        return self._pass_on(data, max(len(data) - self._hold_bytes, data.rfind(b"\n") + 1, 0))

    def end(self) -> bytes:
        return self._pass_on(self._held, len(self._held))

    def _pass_on(self, data: bytes, count: int) -> bytes:
        self._held = data[count:]
        if not count:
            return b""
        spans = [(0, self._begun), *self._spans(data)]
        self._begun = max(0, *(end - count for start, end in spans if start < count))
        return _blacken(data[:count], spans)

    def _spans(self, data: bytes) -> list[tuple[int, int]]:
        """Where values are, also those that lie across each other; in the data as it came, before any is taken out."""
        data = data.lower()
        return [(start, start + len(value)) for value in self._values for start in _places(value, data)]


def _places(value: bytes, data: bytes) -> Iterator[int]:
    place = data.find(value)
    while place >= 0:
        yield place
        place = data.find(value, place + 1)


def _blacken(data: bytes, spans: Iterable[tuple[int, int]]) -> bytes:
    black = bytearray(data)
    for start, end in spans:
        end = min(end, len(black))
        black[start:end] = b"*" * (end - start)
    return bytes(black)


def _read(secret: Secret, source: SecretSource) -> str:
    value = secret.read(source)
    if _VALUE.fullmatch(value) is None:
        raise UsageError(f"{secret.label} holds something that is not valid in a header")
    return value
