"""Values that are known (secrets, canaries), found in a text in the forms that a program can give them with one call.

As they are, in any case of letters; with characters in between (one a line, spaced, quoted); backwards; in hexadecimal,
in dumps of it and as numbers; in base64 at any offset; escaped for URLs, JSON, HTML, Python and shells, in whole or in
part. What compresses or encrypts a value gets past this: the boundary is that secrets never enter a sandbox, and this
is the net below it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from fumehood.errors import UsageError
from fumehood.secret_scan import forms


@dataclass(frozen=True, slots=True)
class TextSpan:
    start: int
    end: int
    what: str
    """What was found there, in words that give nothing of it away."""


def replace_spans(text: str, spans: Iterable[TextSpan]) -> str:
    """Each place becomes `[... removed]`; places that overlap become one."""
    parts: list[str] = []
    end = 0
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        if span.start >= end:
            parts += [text[end : span.start], f"[{span.what} removed]"]
        end = max(end, span.end)
    return "".join([*parts, text[end:]])


SHORTEST = 4
# At the edges a digit of base64 is made of the value and of what stands beside it.
_EDGE = 2
_DIGITS, _DIGITS_AT_END = re.compile(r"[A-Za-z0-9+/_=-]+"), re.compile(r"[A-Za-z0-9+/_-]+\Z")


@dataclass(frozen=True, slots=True)
class SecretValue:
    name: str
    value: str

    def __post_init__(self) -> None:
        if len(self.value) < SHORTEST:
            raise UsageError(f"{self.name} has fewer than {SHORTEST} characters, too few to tell it from other text")

    def __repr__(self) -> str:
        return f"SecretValue({self.name!r})"


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
        if len(needle) < forms.SHORTEST_ENCODED:
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
        if len(needle) >= forms.SHORTEST_ENCODED:
            for start in _occurrences(self._made, needle):
                yield self._starts[start], self._ends[start + len(needle) - 1]


class Text:
    """A text, ready to be searched for any number of values."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._lower = forms.lowered(text)
        self._loose = (View(self._lower, forms.NO_WORD), View(self._lower, forms.BETWEEN))
        self._hex = View(self._lower, forms.BETWEEN_HEX)
        self._base64 = View(forms.in_standard_64(text), forms.BETWEEN_64)

    def find(self, known: SecretValue) -> Iterator[TextSpan]:
        for start, end in self._find(known.value.strip() or known.value):
            yield TextSpan(start, end, known.name)

    def _find(self, value: str) -> Iterator[tuple[int, int]]:
        lower = forms.lowered(value)
        for start in _occurrences(self._lower, lower):
            yield start, start + len(value)
        if len(value) < forms.SHORTEST_ENCODED:
            return
        data = forms.bytes_of(value)
        for view in self._loose:
            yield from view.find(lower)
            yield from view.find(lower[::-1])
        yield from self._hex.find(data.hex())
        yield from self._dumped.find(data.hex())
        if forms.BETWEEN_BYTES.sub("", forms.as_bytes(value)) in self._unescaped:
            for places, junk in self._unescaped_places:
                yield from places.find(junk.sub("", forms.as_bytes(value)))
        for core in forms.base64_cores(data):
            for start, end in self._base64.find(core):
                yield self._widened(start, end)
        for form in forms.escaped(value):
            for start in _occurrences(self._lower, forms.lowered(form)):
                yield start, start + len(form)
        for match in re.finditer(forms.BETWEEN_NUMBERS.pattern.join(map(str, data)), self._text):
            yield match.span()

    @cached_property
    def _unescaped(self) -> str:
        return forms.unescaped(self._text)

    @cached_property
    def _unescaped_places(self) -> list[tuple[Places, re.Pattern[str]]]:
        """The same with where each comes from, which takes longer; first with the signs that a value may end in."""
        return [(Places(_unescape(self._text, junk)), junk) for junk in (forms.BETWEEN, forms.BETWEEN_BYTES)]

    @cached_property
    def _dumped(self) -> Places:
        """The bytes of all dumps. The text beside the last ones goes with them."""
        return Places(
            (self._lower[place], place, line.end())
            for line in forms.DUMP_LINE.finditer(self._lower)
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


def _unescape(text: str, junk: re.Pattern[str]) -> Iterator[tuple[str, int, int]]:
    end = 0
    for match in forms.ESCAPE.finditer(text):
        yield from _each(text, end, match.start(), junk)
        for byte in junk.sub("", forms.as_bytes(forms.meant(match))):
            yield byte, *match.span()
        end = match.end()
    yield from _each(text, end, len(text), junk)


def _each(text: str, start: int, end: int, junk: re.Pattern[str]) -> Iterator[tuple[str, int, int]]:
    for place in range(start, end):
        for byte in junk.sub("", forms.as_bytes(text[place])):
            yield byte, place, place + 1
