"""Text that comes in pieces, filtered as if it had come at once: what may be a part of a find is held back."""

from __future__ import annotations

from collections.abc import Iterator

from fumehood.tools.filters.invisible import make_visible, unfinished
from fumehood.tools.filters.pipeline import Filtered, Pipeline, hidden_characters

# A find that never ends (the beginning of a private key, and no end) is not held for ever.
_MOST_HELD = 64 * 1024
# What tells that something is a credential may stand so far before it, such as `Authorization: Bearer`.
_CONTEXT = 128
# Looking for the place to cut costs the same for one character as for some.
_STEP = 64
_SPACES = " \n\t\r"


class FilterStream:
    """`feed` gives what is certain by now, `finish` the rest. Nothing comes after a text that was blocked."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        # What may be half of a terminal sequence, and what is visible of all before it.
        self._raw, self._held = "", ""
        self._hidden = self._looked_at = 0
        self._is_blocked = False

    def feed(self, text: str) -> Iterator[Filtered]:
        self._take(self._raw + text)
        window = self._pipeline.window
        while len(self._held) > max(window, self._looked_at) + _STEP and not self._is_blocked:
            cut = self._cut(window)
            if cut == 0:
                # Looking again at each piece would cost the square of what is held.
                self._looked_at = len(self._held) * 3 // 2
                return
            self._looked_at = 0
            yield self._pass_on(cut)

    def finish(self) -> Iterator[Filtered]:
        self._take(self._raw, is_last=True)
        if self._held and not self._is_blocked:
            yield self._pass_on(len(self._held))

    def _take(self, text: str, *, is_last: bool = False) -> None:
        """Hidden characters go at once: a secret with enough of them inside would be wider than any window."""
        if not self._pipeline.removes_hidden:
            self._held += text
            return
        end = len(text) if is_last else unfinished(text)
        visible = make_visible(text[:end])
        self._hidden += end - len(visible)
        self._held, self._raw = self._held + visible, text[end:]

    def _cut(self, window: int) -> int:
        """Before the last place that could still become a find, through none that is one, and between words."""
        spans = sorted(self._pipeline.spans(self._held), key=lambda span: span.start, reverse=True)
        cut, last = len(self._held) - window, -1
        while cut != last:
            last = cut = 1 + max(self._held.rfind(space, 0, cut) for space in _SPACES)
            for span in spans:
                if span.start - _CONTEXT < cut < span.end:
                    cut = max(0, span.start - _CONTEXT)
        if cut == 0 and len(self._held) > max(_MOST_HELD, 2 * window):
            return len(self._held)
        return cut

    def _pass_on(self, cut: int) -> Filtered:
        filtered = self._pipeline.sift(self._held[:cut])
        if self._hidden:
            filtered = Filtered(filtered.text, (hidden_characters(self._hidden), *filtered.acts))
        self._held, self._hidden = self._held[cut:], 0
        self._is_blocked = filtered.is_blocked
        return filtered
