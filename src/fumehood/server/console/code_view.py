"""Code and output as HTML: every character can be seen, where it stands.

What an approver reads is coloured by Python's own reader or not at all, since a wrong colour could pass code off as a
comment. Other languages have simple colours (`colours`) where nothing is decided by the look of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from markupsafe import Markup, escape

from fumehood.server.console.colours import LANGUAGES, coloured
from fumehood.tools.approvals.display import Line, Piece, draw

_WIDTH = 1_000_000  # the browser folds
_MOST_LINES = 1000
_MOST_CHARACTERS = 200_000


def approval_lines(lines: Iterable[Line]) -> Markup:
    """Of `tools.approvals`, all of them: what is approved is what is shown."""
    shown = (_line(Markup("").join(map(_piece, line.pieces)), line.number) for line in lines)
    return Markup('<pre class="code whole" tabindex="0">{}</pre>').format(Markup("").join(shown))


def highlighted(text: str, language: str = "") -> Markup:
    kept, rest = _shortened(text.removesuffix("\n"))
    lines = (Markup("").join(map(_piece, _coloured(line, language))) for line in draw(kept, _WIDTH, language))
    shown = (_line(line, number) for number, line in enumerate(lines, 1))
    return Markup('<pre class="code" tabindex="0">{}{}</pre>').format(Markup("").join(shown), rest)


def _coloured(line: Line, language: str) -> Iterator[Piece]:
    for piece in line.pieces:
        if language in LANGUAGES and not piece.style:
            yield from coloured(piece.text, language)
        else:
            yield piece


def plain_lines(text: str) -> Markup:
    """Output of a program."""
    kept, rest = _shortened(text.removesuffix("\n"))
    shown = (_line(Markup("").join(map(_piece, line.pieces)), None) for line in draw(kept, _WIDTH))
    return Markup('<pre class="output" tabindex="0">{}{}</pre>').format(Markup("").join(shown), rest)


def _shortened(text: str) -> tuple[str, Markup]:
    kept = text[:_MOST_CHARACTERS]
    lines = kept.split("\n")
    if len(lines) <= _MOST_LINES and len(kept) == len(text):
        return text, Markup("")
    left = text.count("\n") + 1 - min(len(lines), _MOST_LINES)
    note = Markup('<span class="rest">… {} more lines, {} characters in all</span>').format(left, len(text))
    return "\n".join(lines[:_MOST_LINES]), note


def _line(content: Markup, number: int | None) -> Markup:
    if number is None:
        return Markup('<span class="l">{}\n</span>').format(content)
    return Markup('<span class="l n" data-n="{}">{}\n</span>').format(number, content)


def _piece(piece: Piece) -> Markup:
    if not piece.style:
        return escape(piece.text)
    return Markup('<span class="c-{}">{}</span>').format(piece.style, piece.text)
