"""Values that are known (secrets, canaries), found in a text in the forms that a program can give them with one call.

As they are, in any case of letters; with characters in between (one a line, spaced, quoted); backwards; in hexadecimal,
in dumps of it and as numbers; in base64 at any offset; escaped for URLs, JSON, HTML, Python and shells, in whole or in
part. What compresses or encrypts a value gets past this: the boundary is that secrets never enter a sandbox, and this
is the net below it.
"""

from __future__ import annotations

import base64
import html
import json
import re
import string
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import quote, quote_plus

from fumehood.errors import UsageError
from fumehood.sightings.spans import Span

SHORTEST = 4
# Shorter ones would be found everywhere once they are encoded.
_SHORTEST_ENCODED = 8
_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_STANDARD_64 = str.maketrans("-_", "+/")
_BETWEEN = re.compile(r"""[\s"'`,;|+._:\[\]()\\/-]+""")
_BETWEEN_HEX = re.compile(r"""(?:0x|\\x|[%\s"',:;\[\](){}-])+""")
# A byte as \x63, %63, =63 or \143, or a character as \u0063, \U00000063, \u{63}, &#99; or &#x63;.
_ESCAPE = re.compile(
    r"(?:\\x|%|=)(?P<byte>[0-9A-Fa-f]{2})|\\0?(?P<octal>[0-3][0-7]{2})"
    r"|(?:\\(?:u(?=[0-9A-Fa-f]{4})|U(?=[0-9A-Fa-f]{8})|u\{0*)|&#[xX]0*)"
    r"(?P<hex>(?<=U)[0-9A-Fa-f]{8}|(?<=u)[0-9A-Fa-f]{4}|(?<=[{xX0])[0-9A-Fa-f]{1,6})[;}]?"
    r"|&#0*(?P<decimal>[0-9]{1,7});?"
)
_HAS_ESCAPES = re.compile(r"\\[xuU0-3]|%[0-9A-Fa-f]|=[0-9A-Fa-f]|&#")
# A line of xxd or `hexdump -C`: where in the file, the bytes, and mostly the text that they are.
_DUMP_LINE = re.compile(
    r"^[ \t]*[0-9a-f]{4,16}(?::[ \t]|[ \t]{1,2})[ \t]*"
    r"(?P<bytes>(?:[0-9a-f]{2})+(?:[ \t]{1,2}(?:[0-9a-f]{2})+)*)(?:[ \t]{2}.*)?$",
    re.MULTILINE,
)
_WRAPPING = re.compile(r"(?:\s|\\n)+")
# At the edges a digit of base64 is made of the value and of what stands beside it.
_EDGE = 2
_DIGITS, _DIGITS_AT_END = re.compile(r"[A-Za-z0-9+/_=-]+"), re.compile(r"[A-Za-z0-9+/_-]+\Z")


@dataclass(frozen=True, slots=True)
class Known:
    name: str
    value: str

    def __post_init__(self) -> None:
        if len(self.value) < SHORTEST:
            raise UsageError(f"{self.name} has fewer than {SHORTEST} characters, which nobody can tell from other text")

    def __repr__(self) -> str:
        return f"Known({self.name!r})"


class View:
    """A text without what stands between; finds in it, and tells where that is in the text."""

    def __init__(self, text: str, junk: re.Pattern[str]) -> None:
        self._text, self._junk = text, junk

    @cached_property
    def compact(self) -> str:
        return self._junk.sub("", self._text)

    @cached_property
    def _places(self) -> list[int]:
        places: list[int] = []
        end = 0
        for match in self._junk.finditer(self._text):
            places.extend(range(end, match.start()))
            end = match.end()
        return [*places, *range(end, len(self._text))]

    def find(self, needle: str) -> Iterator[tuple[int, int]]:
        needle = self._junk.sub("", needle)
        if len(needle) < _SHORTEST_ENCODED:
            return
        for start in _occurrences(self.compact, needle):
            yield self._places[start], self._places[start + len(needle) - 1] + 1


class Places:
    """Characters that were made out of a text, and where in it each comes from."""

    def __init__(self, characters: Iterable[tuple[str, int, int]]) -> None:
        found = list(characters)
        self._made = "".join(character for character, _, _ in found)
        self._starts, self._ends = [start for _, start, _ in found], [end for _, _, end in found]

    def find(self, needle: str) -> Iterator[tuple[int, int]]:
        if len(needle) >= _SHORTEST_ENCODED:
            for start in _occurrences(self._made, needle):
                yield self._starts[start], self._ends[start + len(needle) - 1]


class Seen:
    """A text, ready to be searched for any number of values."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._lower = text.translate(_LOWER)
        self._loose = View(self._lower, _BETWEEN)
        self._hex = View(self._lower, _BETWEEN_HEX)
        self._base64 = View(text.translate(_STANDARD_64), _WRAPPING)

    def find(self, known: Known) -> Iterator[Span]:
        for start, end in self._find(known.value.strip() or known.value):
            yield Span(start, end, known.name)

    def _find(self, value: str) -> Iterator[tuple[int, int]]:
        lower = value.translate(_LOWER)
        for start in _occurrences(self._lower, lower):
            yield start, start + len(value)
        if len(value) < _SHORTEST_ENCODED:
            return
        data = value.encode("utf-8", "surrogateescape")
        yield from self._loose.find(lower)
        yield from self._loose.find(lower[::-1])
        yield from self._hex.find(data.hex())
        yield from self._dumped.find(data.hex())
        yield from self._unescaped.find(_BETWEEN.sub("", _as_bytes(lower)))
        for core in _base64_cores(data):
            for start, end in self._base64.find(core):
                yield self._widened(start, end)
        for form in _escaped(value):
            for start in _occurrences(self._lower, form.translate(_LOWER)):
                yield start, start + len(form)
        for match in re.finditer(r"[\s,;]+".join(map(str, data)), self._text):
            yield match.span()

    @cached_property
    def _unescaped(self) -> Places:
        """As somebody reads it who knows every escape, without what stands between; nothing if nothing is escaped."""
        return Places(_unescape(self._text) if _HAS_ESCAPES.search(self._text) else ())

    @cached_property
    def _dumped(self) -> Places:
        """The bytes of all dumps. The text beside the last ones goes with them."""
        return Places(
            (self._lower[place], place, line.end())
            for line in _DUMP_LINE.finditer(self._lower)
            for place in range(*line.span("bytes"))
            if self._lower[place] not in " \t"
        )

    def _widened(self, start: int, end: int) -> tuple[int, int]:
        before = _DIGITS_AT_END.search(self._text[max(0, start - _EDGE) : start])
        after = _DIGITS.match(self._text, end, end + _EDGE)
        return start - len(before[0] if before else ""), after.end() if after else end


def _occurrences(text: str, needle: str) -> Iterator[int]:
    start = text.find(needle)
    while start >= 0:
        yield start
        start = text.find(needle, start + len(needle))


def _unescape(text: str) -> Iterator[tuple[str, int, int]]:
    end = 0
    for match in _ESCAPE.finditer(text):
        for place in range(end, match.start()):
            yield from _each(text[place], place, place + 1)
        yield from _each(_meant(match), *match.span())
        end = match.end()
    for place in range(end, len(text)):
        yield from _each(text[place], place, place + 1)


def _each(characters: str, start: int, end: int) -> Iterator[tuple[str, int, int]]:
    for byte in _as_bytes(characters.translate(_LOWER)):
        if not _BETWEEN.match(byte):
            yield byte, start, end


def _meant(escape: re.Match[str]) -> str:
    """The character. A byte is left as it is, to be one of several of a character."""
    match escape.lastgroup:
        case "byte":
            return bytes([int(escape["byte"], 16)]).decode("utf-8", "surrogateescape")
        case "octal":
            return bytes([int(escape["octal"], 8)]).decode("utf-8", "surrogateescape")
        case "hex":
            number = int(escape["hex"], 16)
        case _:
            number = int(escape["decimal"])
    return chr(number) if number <= sys.maxunicode else ""


def _as_bytes(text: str) -> str:
    """A character for each byte, so that a character can be compared with its bytes."""
    if text.isascii():
        return text
    try:
        return text.encode("utf-8", "surrogateescape").decode("latin-1")
    except UnicodeEncodeError:  # halves of a character, which stand for no byte
        return text.encode("utf-8", "surrogatepass").decode("latin-1")


def _base64_cores(data: bytes) -> Iterator[str]:
    """What base64 makes of it whatever comes before and after: three ways, by the offset."""
    for offset in range(3):
        encoded = base64.b64encode(b"\0" * offset + data).decode("ascii").rstrip("=")
        first = -(-offset * 8 // 6)
        last = (offset + len(data)) * 8 // 6
        yield encoded[first:last]


def _escaped(value: str) -> set[str]:
    forms = {
        quote(value, safe="", errors="surrogateescape"),
        quote(value, errors="surrogateescape"),
        quote_plus(value, errors="surrogateescape"),
        json.dumps(value)[1:-1],
        repr(value)[1:-1],
        html.escape(value),
    }
    return forms - {value}
