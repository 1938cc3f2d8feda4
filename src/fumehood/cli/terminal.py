r"""What a program in a sandbox may do to the terminal in front of it: lines, tabs and colours, nothing else.

A terminal obeys what is written to it: sequences set its title, move the cursor over earlier lines, write to the
clipboard or make it answer as if somebody had typed. Everything but \n, \r, \t and SGR (colours) becomes visible text,
also the characters that turn the order of others around. With \r a program overwrites its own line, as progress bars
do; our own messages begin on a line of their own and contain none.
"""

from __future__ import annotations

import codecs
import re

RESET = "\x1b[0m"
# Bounded: a sequence that never ends is not held back for ever.
_COLOUR = r"\x1b\[[0-9;:]{0,64}m"
# LRE, RLE, PDF, LRO, RLO, then LRI, RLI, FSI, PDI.
_REORDERING = "\u202a-\u202e\u2066-\u2069"
_CONTROL = re.compile(rf"({_COLOUR})|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f{_REORDERING}]")
_ANY_COLOUR = re.compile(_COLOUR)
_UNFINISHED = re.compile(r"\x1b(?:\[[0-9;:]{0,64})?\Z")


def neutralise(text: str) -> str:
    """No colours and no \\r either: for our own messages."""
    return _CONTROL.sub(lambda match: "".join(map(_visible, match[0])), text).replace("\r", "^M")


def _neutralise_but_colours(text: str) -> str:
    return _CONTROL.sub(lambda match: match[1] or _visible(match[0]), text)


def _visible(character: str) -> str:
    """As `cat -v` shows it; the second set of control characters (0x80 to 0x9f) by number."""
    code = ord(character)
    if code > 0xFF:
        return f"\\u{code:04x}"
    if code >= 0x80:
        return f"\\x{code:02x}"
    return "^" + chr(code ^ 0x40) if code < 0x20 or code == 0x7F else character


class TerminalFilter:
    """One stream on its way to a terminal; keeps a sequence together that was cut in two."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self._is_coloured = False
        self._is_inside_line = False

    def feed(self, data: bytes) -> bytes:
        text = self._held + self._decoder.decode(data)
        unfinished = _UNFINISHED.search(text)
        cut = unfinished.start() if unfinished else len(text)
        self._held = text[cut:]
        return self._pass_on(text[:cut])

    def finish(self) -> bytes:
        """What was held back, and an end to the line and to the colours that the program left on."""
        rest = self._pass_on(self._held + self._decoder.decode(b"", final=True))
        self._held = ""
        return rest + (RESET.encode() if self._is_coloured else b"") + (b"\n" if self._is_inside_line else b"")

    def _pass_on(self, text: str) -> bytes:
        shown = _neutralise_but_colours(text)
        last = shown.rfind("\x1b")
        if last >= 0:
            self._is_coloured = not shown.startswith((RESET, "\x1b[m"), last)
        if printed := _ANY_COLOUR.sub("", shown):
            self._is_inside_line = not printed.endswith("\n")
        return shown.encode("utf-8", "replace")
