"""The forms in which a known value shows up: how a text is read to find it in one, and what it looks like there.

A text may come in pieces, cut anywhere. So each form can tell the part of a text that is read the same whatever follows
from the rest that has to wait; what is read out of the first is kept compact, however much stood in between.
Everything here takes time in proportion to the text.
"""

from __future__ import annotations

import base64
import html
import json
import re
import string
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from urllib.parse import quote, quote_plus

# Shorter ones would be found everywhere once they are encoded.
SHORTEST_ENCODED = 8
LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
STANDARD_64 = str.maketrans("-_", "+/")
# What separates and quotes. Enough for values that are hardly more than such characters themselves.
BETWEEN = re.compile(r"""[\s"'`,;|+._:\[\]()\\/-]+""")
NO_WORD = re.compile(r"[\W_]+")
_NO_DIGIT_64 = re.compile(r"[^A-Za-z0-9+/]+")
_MARK_OF_HEX, _END_OF_LINE = re.compile(r"0x|\\x"), re.compile(r"\\[nrt]")
BETWEEN_HEX = re.compile(r"(?:0x|\\x|[\W_])+")
BETWEEN_64 = re.compile(r"(?:\\[nrt]|[^A-Za-z0-9+/])+")
BETWEEN_NUMBERS = re.compile(r"[^0-9]+0*")
# Between characters that are taken for their bytes: everything but letters, digits and bytes above ASCII.
BETWEEN_BYTES = re.compile(r"[\x00-/:-@\[-`{-\x7f]+")
_INVISIBLE = re.compile(
    "[\u00a0\u00ad\u034f\u061c\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufe00-\ufe0f\ufeff]+"
)
_HALF_CHARACTERS = re.compile("[\ud800-\udc7f\udd00-\udfff]+")
# A byte as \x63, %63, =63 or \143, or a character as \u0063, \U00000063, \u{63}, &#99; or &#x63;.
ESCAPE = re.compile(
    r"(?:\\x|%|=)(?P<byte>[0-9A-Fa-f]{2})|\\0?(?P<octal>[0-3][0-7]{2})"
    r"|(?:\\(?:u(?=[0-9A-Fa-f]{4})|U(?=[0-9A-Fa-f]{8})|u\{0*)|&#[xX]0*)"
    r"(?P<hex>(?<=U)[0-9A-Fa-f]{8}|(?<=u)[0-9A-Fa-f]{4}|(?<=[{xX0])[0-9A-Fa-f]{1,6})[;}]?"
    r"|&#0*(?P<decimal>[0-9]{1,7});?"
)
_NOUGHTS = re.compile(r"(&#[xX]?|\\u\{)0+(?=0)")
_BEGUN_ESCAPE = re.compile(
    r"(?:[%=][0-9A-Fa-f]?|&(?:#(?:[xX][0-9A-Fa-f]{0,7}|[0-9]{0,8}))?"
    r"|\\(?:x[0-9A-Fa-f]?|u[0-9A-Fa-f]{0,4}|u\{[0-9A-Fa-f]{0,7}|U[0-9A-Fa-f]{0,8}|[0-7]{0,4}))\Z"
)
_LONGEST_ESCAPE = 12
# A line of xxd or `hexdump -C`: where in the file, the bytes, and mostly the text that they are.
DUMP_LINE = re.compile(
    r"^[ \t]*[0-9a-f]{4,16}(?::[ \t]|[ \t]{1,2})[ \t]*"
    r"(?P<bytes>(?:[0-9a-f]{2})+(?:[ \t]{1,2}(?:[0-9a-f]{2})+)*)(?:[ \t]{2}.*)?$",
    re.MULTILINE,
)
_BEGUN_DUMP_LINE = re.compile(r"[0-9a-f]{0,3}\Z|[0-9a-f]{4,16}(?:\Z|[: \t])")
_MOST_OF_A_LINE = 1024
_BYTES = tuple(bytes([number]).decode("utf-8", "surrogateescape") for number in range(256))
_BLANKS = str.maketrans("", "", " \t")


def _all_of(text: str) -> tuple[str, str]:
    return text, ""


@dataclass(frozen=True, slots=True)
class Form:
    """`read` gives a text as this form shows it, `needles` what is looked for there.

    `split` parts a text that goes on: what is read the same whatever follows, and what waits for more. The latter may
    be written shorter than it was.
    """

    read: Callable[[str], str]
    needles: Callable[[str], Iterable[str]]
    split: Callable[[str], tuple[str, str]] = _all_of


def lowered(text: str) -> str:
    return text.translate(LOWER)


def in_standard_64(text: str) -> str:
    return text.translate(STANDARD_64)


def _remover(junk: re.Pattern[str]) -> Callable[[str], str]:
    """Takes out the characters of one class, in mostly plain text many times faster than the pattern itself does."""
    plain = bytes(code for code in range(128) if junk.fullmatch(chr(code)))

    def remove(text: str) -> str:
        return text.encode().translate(None, plain).decode() if text.isascii() else junk.sub("", text)

    return remove


_to_words, _to_words_and_signs = _remover(NO_WORD), _remover(BETWEEN)
_to_digits_64, _to_plain_bytes = _remover(_NO_DIGIT_64), _remover(BETWEEN_BYTES)


def unescaped(text: str) -> str:
    """The text with every escape decoded and separators removed: one character for each byte."""
    return _to_plain_bytes(as_bytes(ESCAPE.sub(meant, text)))


def meant(escape: re.Match[str]) -> str:
    """The character. A byte is left as it is, to be one of several of a character."""
    match escape.lastgroup:
        case "byte":
            return _BYTES[int(escape["byte"], 16)]
        case "octal":
            return _BYTES[int(escape["octal"], 8)]
        case "hex":
            number = int(escape["hex"], 16)
        case _:
            number = int(escape["decimal"])
    return chr(number) if number <= sys.maxunicode else ""


def as_bytes(text: str) -> str:
    """One character for each byte, so that characters can be compared with bytes; without invisible characters."""
    if text.isascii():
        return lowered(text)
    # Halves of a character stand for no byte.
    text = _HALF_CHARACTERS.sub("", _INVISIBLE.sub("", text))
    return lowered(text.encode("utf-8", "surrogateescape").decode("latin-1"))


def base64_cores(data: bytes) -> Iterable[str]:
    """What base64 makes of it whatever comes before and after: three ways, by the offset."""
    for offset in range(3):
        encoded = base64.b64encode(b"\0" * offset + data).decode("ascii").rstrip("=")
        first = -(-offset * 8 // 6)
        last = (offset + len(data)) * 8 // 6
        yield encoded[first:last]


def escaped(value: str) -> set[str]:
    forms = {
        quote(value, safe="", errors="surrogateescape"),
        quote(value, errors="surrogateescape"),
        quote_plus(value, errors="surrogateescape"),
        json.dumps(value)[1:-1],
        repr(value)[1:-1],
        html.escape(value),
    }
    return forms - {value}


def bytes_of(value: str) -> bytes:
    return value.encode("utf-8", "surrogateescape")


def _read_dump(text: str) -> str:
    return "".join(line["bytes"].translate(_BLANKS) for line in DUMP_LINE.finditer(lowered(text)))


def _split_dump(text: str) -> tuple[str, str]:
    """By lines. Of one that can be no line of a dump nothing is kept but that."""
    end = text.rfind("\n") + 1
    rest = lowered(text[end:].lstrip(" \t"))
    could_be = len(rest) <= _MOST_OF_A_LINE and _BEGUN_DUMP_LINE.match(rest)
    return text[:end], rest if could_be else "!"


def _split_escapes(text: str) -> tuple[str, str]:
    text = _NOUGHTS.sub(r"\1", text)
    begun = _BEGUN_ESCAPE.search(text, max(0, len(text) - _LONGEST_ESCAPE))
    end = len(text) if begun is None else begun.start()
    return text[:end], text[end:]


def _split_numbers(text: str) -> tuple[str, str]:
    text = _read_numbers(text)
    return (text[:-1], ",") if text.endswith(",") else (text, "")


def _read_numbers(text: str) -> str:
    return BETWEEN_NUMBERS.sub(",", text)


def _split_before(*last: str) -> Callable[[str], tuple[str, str]]:
    """These may be the first half of what stands between."""
    return lambda text: (text[:-1], text[-1:]) if text.endswith(last) else (text, "")


def _both_ways(value: str) -> tuple[str, str]:
    return lowered(value), lowered(value)[::-1]


def _read_loosely(text: str) -> str:
    return _to_words(lowered(text))


def _read_less_loosely(text: str) -> str:
    return _to_words_and_signs(lowered(text))


def _less_loosely(value: str) -> Iterable[str]:
    """Only for values that have too few letters and digits."""
    return () if len(_read_loosely(value)) >= SHORTEST_ENCODED else map(_read_less_loosely, _both_ways(value))


PLAIN = Form(lowered, lambda value: (lowered(value), *map(lowered, escaped(value))))
ENCODED = (
    Form(_read_loosely, lambda value: map(_read_loosely, _both_ways(value))),
    Form(_read_less_loosely, _less_loosely),
    Form(
        lambda text: _to_words(_MARK_OF_HEX.sub("", lowered(text))),
        lambda value: (bytes_of(value).hex(),),
        _split_before("0", "\\"),
    ),
    Form(_read_dump, lambda value: (bytes_of(value).hex(),), _split_dump),
    Form(unescaped, lambda value: (_to_plain_bytes(as_bytes(value)),), _split_escapes),
    Form(
        lambda text: _to_digits_64(_END_OF_LINE.sub("", in_standard_64(text))),
        lambda value: base64_cores(bytes_of(value)),
        _split_before("\\"),
    ),
    Form(_read_numbers, lambda value: (_read_numbers(",".join(map(str, bytes_of(value)))),), _split_numbers),
)


def forms_of(value: str) -> list[tuple[Form, tuple[str, ...]]]:
    """Where to look for a value, and for what. A short one is looked for as it is, since it is everywhere else."""
    if len(value) < SHORTEST_ENCODED:
        return [(PLAIN, (lowered(value),))]
    found = [(form, tuple(each for each in form.needles(value) if len(each) >= SHORTEST_ENCODED)) for form in ENCODED]
    return [(PLAIN, tuple(PLAIN.needles(value))), *((form, needles) for form, needles in found if needles)]
