"""Which characters a person can see, and which ones hide, reorder or overwrite what stands around them.

Text that a model wrote is shown to people and to models. Terminals obey control characters; direction overrides show
code in another order than it runs in; characters of no width carry messages that only a model reads.
"""

from __future__ import annotations

import re
import unicodedata

# Shown as nothing although they are letters or marks to Unicode.
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0\ufffc")
_VARIATION = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]")
# Control, format (direction, width, tags), surrogates, private use, unassigned, line and paragraph separators.
_HIDDEN_KINDS = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_COMBINING_KINDS = frozenset({"Mn", "Me", "Mc"})


def is_hidden(character: str) -> bool:
    """Not to be seen, or not where it stands. Spaces other than the common one count, which look like it."""
    if " " <= character <= "~":
        return False
    kind = unicodedata.category(character)
    return kind in _HIDDEN_KINDS or kind == "Zs" or character in _BLANK or _VARIATION.match(character) is not None


def is_combining(character: str) -> bool:
    """Drawn onto the character before it."""
    return unicodedata.category(character) in _COMBINING_KINDS


def columns(character: str) -> int:
    """How wide a visible character is on a terminal."""
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
