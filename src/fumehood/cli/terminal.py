r"""What a program in a sandbox may do to the terminal in front of it: lines, tabs and colours, nothing else.

A terminal obeys what is written to it: sequences set its title, move the cursor over earlier lines, write to the
clipboard or make it answer as if keys had been typed. Everything but \n, \r, \t, SGR (colours) and characters that are
known to be harmless becomes visible text. With \r a program overwrites its own line, as progress bars do; our own
messages begin on a line of their own, without its colours, and contain none.
"""

from __future__ import annotations

import codecs
import re

from fumehood.characters import by_number, is_harmless

RESET = "\x1b[0m"
# Bounded: a sequence that never ends is not held back for ever.
_COLOUR = r"\x1b\[[0-9;:]{0,64}m"
# In Persian, and between the parts of an emoji: they change neither place nor order.
_JOINERS = "\u200c\u200d"
_UNUSUAL = re.compile(rf"({_COLOUR})|[^ -~\n\r\t{_JOINERS}]")
_ANY_COLOUR = re.compile(_COLOUR)
_UNFINISHED = re.compile(r"\x1b(?:\[[0-9;:]{0,64})?\Z")


def _neutralise_but_colours(text: str) -> str:
    return _UNUSUAL.sub(lambda match: match[0] if match[1] or is_harmless(match[0]) else by_number(match[0]), text)


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
        """What was held back, and an end to the line and to the colours that the program left on.

        Whatever comes after that is a new line.
        """
        rest = self._pass_on(self._held + self._decoder.decode(b"", final=True))
        ending = (RESET.encode() if self._is_coloured else b"") + (b"\n" if self._is_inside_line else b"")
        self._decoder.reset()
        self._held, self._is_coloured, self._is_inside_line = "", False, False
        return rest + ending

    def _pass_on(self, text: str) -> bytes:
        shown = _neutralise_but_colours(text)
        last = shown.rfind("\x1b")
        if last >= 0:
            self._is_coloured = not shown.startswith((RESET, "\x1b[m"), last)
        if printed := _ANY_COLOUR.sub("", shown):
            self._is_inside_line = not printed.endswith("\n")
        return shown.encode("utf-8", "replace")
