"""A text as it is shown to an approver: all of it, and nothing that only looks like it.

Every text has one picture, and no two texts have the same: what cannot be seen is shown as its number, between marks
that are shown as their own number when they occur in the text. Lines are folded, never cut.
"""

from __future__ import annotations

import io
import keyword
import tokenize
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby, takewhile

from fumehood.characters import FOLD, MARKED_SPACE, TAB, is_combining, is_hidden, visible, width_of

_MOST_NOTES = 5
_MOST_COLOURED = 500
"""Characters of a line: the time that Python's reader takes for one can grow with the square of its length."""

Style = str
KEYWORD, TEXT, COMMENT, NUMBER, STRANGE, PLAIN = "keyword", "text", "comment", "number", "strange", ""
COLOURS = {KEYWORD: "1;34", TEXT: "32", COMMENT: "36", NUMBER: "35", STRANGE: "7"}


@dataclass(frozen=True, slots=True)
class Piece:
    """Some characters of one style; they are printable, all of them."""

    text: str
    style: Style = PLAIN


_MARKED_SPACE = Piece(MARKED_SPACE, STRANGE)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the picture. `number` is that of the text's line which begins here; None where one goes on."""

    number: int | None
    pieces: tuple[Piece, ...]

    def __str__(self) -> str:
        return "".join(piece.text for piece in self.pieces)


def draw(text: str, width: int, language: str = "") -> list[Line]:
    """The picture, `width` columns wide."""
    styles = _python_styles(text) if language == "python" else {}
    lines: list[Line] = []
    for number, line in enumerate(text.split("\n"), 1):
        for part, folded in enumerate(_fold(_cells(line, number, styles), width)):
            lines.append(Line(number if part == 0 else None, _merged(folded)))
    return lines


def notes(text: str, *, is_numbered: bool = True) -> list[str]:
    """What is strange about a text, in words; with the numbers of its lines, if it is shown with them."""
    found = [
        (number if is_numbered else None, character)
        for number, line in enumerate(text.split("\n"), 1)
        for character in dict.fromkeys(line)
        if character != "\t" and (not character.isascii() or is_hidden(character))
    ]
    hidden = [each for each in found if is_hidden(each[1]) or is_combining(each[1])]
    visible = [each for each in found if each not in hidden]
    return [
        *_listed("hidden characters", hidden),
        *_listed("letters that may look like others", [each for each in visible if each[1].isalpha()]),
        *_listed("signs that may look like others", [each for each in visible if not each[1].isalpha()]),
    ]


def _listed(what: str, found: list[tuple[int | None, str]]) -> list[str]:
    """Each character once. Those of one script do not keep those of another from being named."""
    lines: dict[str, list[int]] = {}
    for number, character in found:
        lines.setdefault(character, []).extend(() if number is None else (number,))
    scripts: dict[str, list[str]] = {}
    for character, numbers in lines.items():
        scripts.setdefault(_script(character), []).append(f"{_in_lines(numbers)}{_name(character)}")
    named = [_cut(script, each) for script, each in scripts.items()]
    return [f"{what}: {'; '.join(named)}"] if named else []


def _cut(script: str, named: list[str]) -> str:
    more = len(named) - _MOST_NOTES
    return "; ".join(named[:_MOST_NOTES]) + (f"; and {more} more of {script}" if more > 0 else "")


def _in_lines(numbers: list[int]) -> str:
    if not numbers:
        return ""
    shown = ", ".join(map(str, numbers[:_MOST_NOTES]))
    more = f" and {len(numbers) - _MOST_NOTES} more" if len(numbers) > _MOST_NOTES else ""
    return f"line{'s' if len(numbers) > 1 else ''} {shown}{more}: "


def _script(character: str) -> str:
    """The script of a character, from the first word of its name, such as CYRILLIC."""
    return unicodedata.name(character, "CONTROL").partition(" ")[0]


def _name(character: str) -> str:
    return f"U+{ord(character):04X} {unicodedata.name(character, 'control character')}"


def _cells(line: str, number: int, styles: Mapping[tuple[int, int], Style]) -> Iterator[Piece]:
    is_behind_tab = False
    for place, character in enumerate(line):
        if character == "\t":
            is_behind_tab = True
            yield Piece(TAB, STRANGE)
        elif character == " " and is_behind_tab:
            yield _MARKED_SPACE  # how wide the tab is cannot be seen
        else:
            is_behind_tab = False
            shown = visible(character)
            yield Piece(shown, styles.get((number, place), PLAIN) if shown == character else STRANGE)


def _fold(cells: Iterable[Piece], width: int) -> Iterator[list[Piece]]:
    """Rows of at most `width` columns. Those that go on begin with a mark, and blanks where a row ends are marked."""
    row: list[Piece] = []
    used, is_first = 0, True
    for cell in cells:
        size = width_of(cell.text)
        if used + size > width and row:
            yield _with_marked_blanks(row, is_first=is_first)
            row, used, is_first = [], 2, False
        row.append(cell)
        used += size
    yield _with_marked_blanks(row, is_first=is_first)


def _with_marked_blanks(row: list[Piece], *, is_first: bool) -> list[Piece]:
    """Blanks at the end cannot be seen, nor how many follow the mark of a row that goes on."""
    end = _blanks(reversed(row))
    row[len(row) - end :] = [_MARKED_SPACE] * end
    if is_first:
        return row
    start = _blanks(row)
    return [Piece(f"{FOLD} ", STRANGE), *[_MARKED_SPACE] * start, *row[start:]]


def _blanks(cells: Iterable[Piece]) -> int:
    return sum(1 for _ in takewhile(lambda cell: cell.text == " ", cells))


def _merged(cells: list[Piece]) -> tuple[Piece, ...]:
    alike = groupby(cells, lambda cell: cell.style)
    return tuple(Piece("".join(cell.text for cell in some), style) for style, some in alike)


def _python_styles(text: str) -> dict[tuple[int, int], Style]:
    """By line and place. A wrong colour could pass code off as a comment, so the language's own reader decides.

    Text that it might read otherwise, or not at all, has no colours.
    """
    if any(is_hidden(character) and character not in "\n\t" for character in text):
        return {}
    if max(map(len, text.split("\n"))) > _MOST_COLOURED:
        return {}
    styles: dict[tuple[int, int], Style] = {}
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if style := _style(token):
                styles.update((place, style) for place in _places(token))
    except (tokenize.TokenError, SyntaxError, ValueError):
        return {}
    return styles


def _style(token: tokenize.TokenInfo) -> Style:
    match token.type:
        case tokenize.STRING:
            return TEXT
        case tokenize.COMMENT:
            return COMMENT
        case tokenize.NUMBER:
            return NUMBER
        case tokenize.NAME if keyword.iskeyword(token.string):
            return KEYWORD
        case _:
            return PLAIN


def _places(token: tokenize.TokenInfo) -> Iterator[tuple[int, int]]:
    row, place = token.start
    for character in token.string:
        if character == "\n":
            row, place = row + 1, 0
        else:
            yield row, place
            place += 1
