"""Places in a text, and what they are replaced by."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


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
