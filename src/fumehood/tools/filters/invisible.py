"""Terminal sequences and invisible characters, taken out of a text.

A model reads them all the same: tags and variation selectors carry whole sentences that no person notices. What is
part of writing stays: one joiner or selector at a time between characters beyond ASCII, as in emoji and Persian.
"""

from __future__ import annotations

import re

from fumehood.characters import is_hidden

_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x9b[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    # OSC, DCS and more, with their text; of one that does not end only the beginning goes, and the text stays.
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]{0,4096}(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]*[0-~]"
)
_LINE_END = re.compile(r"\r\n?|\x85|\u2028|\u2029")
_LONGEST = 4200
_UNFINISHED = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*\Z|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*\x1b?\Z|\x1b[ -/]*\Z|\r\Z"
)
_UNUSUAL = re.compile(r"[^ -~\n\t]")
_KEPT = "\n\t\u00a0\u202f\u3000"
_JOINERS = "\u200c\u200d\ufe0e\ufe0f"


def make_visible(text: str) -> str:
    """Overwritten lines become lines of their own, so that nothing is lost that was visible."""
    if text.isascii() and text.isprintable():
        return text
    text = _LINE_END.sub("\n", _SEQUENCE.sub("", text))
    return _UNUSUAL.sub(lambda match: match[0] if _is_kept(text, match.start()) else "", text)


def unfinished(text: str) -> int:
    """Where a sequence begins that may go on in the next piece of a text; the end of the text if none does."""
    match = _UNFINISHED.search(text, max(0, len(text) - _LONGEST))
    return match.start() if match else len(text)


def _is_kept(text: str, place: int) -> bool:
    character = text[place]
    if not is_hidden(character):
        return True
    if character not in _JOINERS:
        return character in _KEPT or "\u2000" <= character <= "\u200a"
    before, after = text[place - 1 : place], text[place + 1 : place + 2]
    is_writing = bool(before) and not before.isascii() and before not in _JOINERS and not is_hidden(before)
    return is_writing and (character in "\ufe0e\ufe0f" or (bool(after) and not after.isascii()))
