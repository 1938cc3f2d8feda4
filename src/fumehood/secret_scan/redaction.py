"""Redaction: values of secrets replaced in text and bytes before they are written."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress

from fumehood.policy import Policy
from fumehood.policy.secret import MissingValueError, SecretSource

_BLACK = "[redacted]"
# How bytes become text elsewhere: as UTF-8, with something in place of what is not, or one character for each byte.
_READINGS = (
    *(("utf-8", "surrogateescape"), ("utf-8", "backslashreplace"), ("utf-8", "replace")),
    ("latin-1", "strict"),
)


def encodings(value: str) -> tuple[bytes, ...]:
    """The bytes that stand for a value: as UTF-8, and as Latin-1, which is what headers carry.

    Bytes are compared in any case of ASCII letters; others are in both cases here.
    """
    found: dict[bytes, None] = {}
    for form in (value,) if value.isascii() else (value, value.lower(), value.upper()):
        for encoding, errors in (("utf-8", "surrogateescape"), ("latin-1", "strict")):
            with suppress(UnicodeEncodeError):
                found[form.encode(encoding, errors)] = None
    return tuple(found)


class Redaction:
    """Longest first, so that a secret that contains another one leaves nothing of itself.

    In any case of letters: a name that is looked up is in the log in small ones, whatever was looked up.
    """

    def __init__(self) -> None:
        self.values: tuple[str, ...] = ()
        self._texts: tuple[str, ...] = ()
        self._data: tuple[bytes, ...] = ()

    @classmethod
    def of(cls, values: Iterable[str]) -> Redaction:
        redaction, values = cls(), tuple(values)
        if values:
            redaction.add(values)
        return redaction

    @classmethod
    def for_policy(cls, policy: Policy, source: SecretSource) -> Redaction:
        """The values that the policy's secrets have now. One that the source does not have cannot leak."""
        values: list[str] = []
        for secret in policy.secrets:
            with suppress(MissingValueError):
                values.append(secret.read(source))
        return cls.of(values)

    def add(self, values: Iterable[str]) -> None:
        """Remove these too from now on, wherever this redaction is in use."""
        found = {*self.values, *(form for value in values for form in (value, value.strip()) if form)}
        data = {each for value in found for each in encodings(value)}
        texts = {text for each in data for reading in _READINGS if (text := each.decode(*reading)).strip("\ufffd")}
        self._data = tuple(sorted(data, key=len, reverse=True))
        self._texts = tuple(sorted(found | texts, key=len, reverse=True))
        self.values = tuple(sorted(found, key=len, reverse=True))

    def text(self, text: str) -> str:
        for value in self._texts:
            if value.lower() in text.lower():
                text = re.sub(re.escape(value), _BLACK, text, flags=re.IGNORECASE)
        return text

    def data(self, data: bytes) -> bytes:
        for value in self._data:
            if value.lower() in data.lower():
                data = re.sub(re.escape(value), _BLACK.encode(), data, flags=re.IGNORECASE)
        return data
