"""Text that comes in pieces, filtered as if it had come at once: what may be a part of a find is held back."""

from __future__ import annotations

from collections.abc import Iterator

from fumehood.tools.filters.invisible import make_visible, unfinished
from fumehood.tools.filters.pipeline import Filtered, Pipeline, hidden_characters

# A find that never ends (the beginning of a private key, and no end) is not held for ever.
_MOST_HELD = 16


class FilterStream:
    """`feed` gives what is certain by now, `finish` the rest. Nothing comes after a text that was blocked."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        # What may be half of a terminal sequence, and what is visible of all before it.
        self._raw, self._held = "", ""
        self._hidden = 0
        self._is_blocked = False

    def feed(self, text: str) -> Iterator[Filtered]:
        self._take(self._raw + text)
        window = self._pipeline.window
        while len(self._held) > 2 * window and not self._is_blocked:
            cut = self._cut(window)
            if cut == 0:
                return
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
        """Before the last place that could still become a find, and through none that is one."""
        cut = len(self._held) - window
        for span in self._pipeline.spans(self._held):
            if span.start < cut < span.end:
                cut = span.start
        if cut == 0 and len(self._held) > _MOST_HELD * window:
            return len(self._held)
        return cut

    def _pass_on(self, cut: int) -> Filtered:
        filtered = self._pipeline.sift(self._held[:cut])
        if self._hidden:
            filtered = Filtered(filtered.text, (hidden_characters(self._hidden), *filtered.acts))
        self._held, self._hidden = self._held[cut:], 0
        self._is_blocked = filtered.is_blocked
        return filtered
