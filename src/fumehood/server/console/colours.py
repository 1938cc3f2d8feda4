"""Colours for languages other than Python, on pages where nothing is decided by the look of a text. Pure.

One expression for a line, whose parts are bounded or never begin where another has ended: its time grows with the text,
whatever a program made that look like. Lexers that are written for what people write take minutes for some texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from fumehood.tools.approvals.display import COMMENT, KEYWORD, NUMBER, PLAIN, TEXT, Piece, Style

_WORDS = {
    "shell": "case do done elif else esac export fi for function if in local return then until while",
    "javascript": "async await break case catch class const continue else export for from function if import let new "
    "of return throw try var while",
    "json": "true false null",
}
_ALIKE = {"bash": "shell", "sh": "shell", "yaml": "json"}
_COMMENTS = {"javascript": "//", "json": "(?!)"}
LANGUAGES = frozenset({*_WORDS, *_ALIKE})
_KEYWORDS = {language: frozenset(_WORDS[_ALIKE.get(language, language)].split()) for language in LANGUAGES}
_PARTS = r"""(?P<text>"[^"]{0,300}"|'[^']{0,300}')|(?P<comment>(?<!\S)%s.*)|(?P<word>[\w.-]+)"""
_TOKENS = {language: re.compile(_PARTS % _COMMENTS.get(language, "#")) for language in LANGUAGES}


def coloured(line: str, language: str) -> Iterator[Piece]:
    """All of the line, in its order."""
    place = 0
    for match in _TOKENS[language].finditer(line):
        if match.start() > place:
            yield Piece(line[place : match.start()])
        place = match.end()
        yield Piece(match[0], _style(match, language))
    if place < len(line):
        yield Piece(line[place:])


def _style(match: re.Match[str], language: str) -> Style:
    if match.lastgroup != "word":
        return TEXT if match.lastgroup == "text" else COMMENT
    word = match[0]
    if word[0].isdigit():
        return NUMBER
    if language == "yaml" and match.string.startswith(":", match.end()):
        return KEYWORD
    return KEYWORD if word in _KEYWORDS[language] else PLAIN
