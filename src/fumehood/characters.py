"""Which characters a person can see, and which ones hide, reorder or overwrite what stands around them.

Text that a model wrote is shown to people and to models. Terminals obey control characters; direction overrides show
code in another order than it runs in; characters of no width carry messages that only a model reads. What is not known
to be harmless is shown by its number, in one way everywhere.
"""

from __future__ import annotations

import re
import unicodedata

# Shown as nothing although they are letters or marks to Unicode.
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0\ufffc\U0001d159")
_VARIATION = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]")
_AS_PICTURE = "\ufe0f"  # behind an emoji
# Control, format (direction, width, tags), surrogates, private use, unassigned, line and paragraph separators.
_HIDDEN_KINDS = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_RIGHT_TO_LEFT = frozenset({"R", "AL", "AN"})
_COMBINING_KINDS = frozenset({"Mn", "Me", "Mc"})
# Letters, marks, numbers, punctuation and symbols, by the first letter of the kind; and spaces.
_HARMLESS_KINDS = "LMNPS"
_UNUSUAL = re.compile(r"[^ -~]")
TAB, FOLD, MARKED_SPACE = "→   ", "↪", "·"
_MARKS = frozenset("⟨⟩→↪·")


def is_hidden(character: str) -> bool:
    """Not to be seen, or not where it stands. Spaces other than the common one count, which look like it."""
    if " " <= character <= "~":
        return False
    kind = unicodedata.category(character)
    return kind in _HIDDEN_KINDS or kind == "Zs" or character in _BLANK or _VARIATION.match(character) is not None


def is_combining(character: str) -> bool:
    """Drawn onto the character before it."""
    return unicodedata.category(character) in _COMBINING_KINDS


def reorders(character: str) -> bool:
    """Written from right to left: a terminal that knows of that shows what stands around it in another order, too."""
    return unicodedata.bidirectional(character) in _RIGHT_TO_LEFT


def columns(character: str) -> int:
    """How wide a visible character is on a terminal."""
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def is_harmless(character: str) -> bool:
    """A terminal shows it where it stands, and obeys nothing."""
    kind = unicodedata.category(character)
    is_shown = character not in _BLANK and (character == _AS_PICTURE or not _VARIATION.match(character))
    return is_shown and (kind[0] in _HARMLESS_KINDS or kind == "Zs")


def by_number(character: str) -> str:
    return f"⟨U+{ord(character):04X}⟩"


def neutralise(text: str) -> str:
    """Text for a terminal: control, bidirectional and invisible characters shown by number. Lines stay lines."""
    return _UNUSUAL.sub(
        lambda match: match[0] if match[0] in "\n\t" or is_harmless(match[0]) else by_number(match[0]), text
    )


def visible(character: str) -> str:
    """A character as an approver sees it: no two look the same, and our own marks are shown by number too."""
    if is_hidden(character) or is_combining(character) or character in _MARKS or reorders(character):
        return by_number(character)
    return character


def one_line(text: str) -> str:
    """Text on one line, for names and reasons in a message. Blanks at the end are marked."""
    shown = _UNUSUAL.sub(lambda match: visible(match[0]), text)
    rest = shown.rstrip(" ")
    return shown if len(rest) == len(shown) else rest + MARKED_SPACE * (len(shown) - len(rest))


def width_of(text: str) -> int:
    """In columns of a terminal, of what is visible."""
    return sum(columns(character) for character in text)


def cut(text: str, width: int, end: str = "...") -> str:
    """At most so many columns; `end` stands for what is left out."""
    if width_of(text) <= width:
        return text
    room, kept = width - len(end), ""
    for character in text:
        room -= columns(character)
        if room < 0:
            break
        kept += character
    return kept + end


def padded(text: str, width: int) -> str:
    return text + " " * (width - width_of(text))
