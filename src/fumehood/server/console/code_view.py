"""Code and output as HTML: every character can be seen, where it stands.

What an approver reads is coloured by Python's own reader or not at all, since a wrong colour could pass code off as a
comment. Pygments colours other languages where nothing is decided by the look of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from markupsafe import Markup, escape

from fumehood.characters import neutralise
from fumehood.tools.approvals.display import Line, Piece, draw

_WIDTH = 1_000_000  # the browser folds
_MOST_LINES = 1000
_MOST_CHARACTERS = 200_000
_LEXERS = {"shell": "bash", "bash": "bash", "sh": "bash", "javascript": "javascript", "json": "json", "yaml": "yaml"}


def approval_lines(lines: Iterable[Line]) -> Markup:
    """Of `tools.approvals`, all of them: what is approved is what is shown."""
    shown = (_line(Markup("").join(map(_piece, line.pieces)), line.number) for line in lines)
    return Markup('<pre class="code" tabindex="0">{}</pre>').format(Markup("").join(shown))


def highlighted(text: str, language: str = "") -> Markup:
    kept, rest = _shortened(text.removesuffix("\n"))
    if language in _LEXERS and kept.isascii():
        lines = list(_coloured(kept, _LEXERS[language]))
    else:
        lines = [Markup("").join(map(_piece, line.pieces)) for line in draw(kept, _WIDTH, language)]
    shown = (_line(line, number) for number, line in enumerate(lines, 1))
    return Markup('<pre class="code" tabindex="0">{}{}</pre>').format(Markup("").join(shown), rest)


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


def _coloured(text: str, lexer: str) -> Iterator[Markup]:
    """Pygments says where tokens are; that what it says is all of the text is checked."""
    tokens = list(_lexer(lexer).get_tokens(text))
    if "".join(value for _, value in tokens).rstrip("\n") != text.rstrip("\n"):
        yield from (escape(neutralise(line)) for line in text.split("\n"))
        return
    line = Markup("")
    for kind, value in tokens:
        for place, part in enumerate(value.split("\n")):
            if place:
                yield line
                line = Markup("")
            line += _token(str(kind), part)
    if line:
        yield line


def _token(kind: str, text: str) -> Markup:
    style = next((css for name, css in _STYLES.items() if name in kind), "")
    shown = escape(neutralise(text))
    return Markup('<span class="c-{}">{}</span>').format(style, shown) if style and text else shown


_STYLES = {"Comment": "comment", "String": "text", "Keyword": "keyword", "Builtin": "keyword", "Number": "number"}


@cache
def _lexer(name: str) -> Any:
    from pygments import lexers

    found: Any = lexers
    return found.get_lexer_by_name(name, stripnl=False, ensurenl=False)
