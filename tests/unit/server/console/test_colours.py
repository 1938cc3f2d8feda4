"""Colours of code on pages where nothing is decided by its look, and texts that are made to take long."""

from __future__ import annotations

import pytest

from fumehood.server.console.code_view import highlighted
from fumehood.server.console.colours import LANGUAGES, coloured


def styles(line: str, language: str) -> dict[str, str]:
    return {piece.text: piece.style for piece in coloured(line, language) if piece.style}


def test_what_a_person_wrote_has_the_colours_of_its_language() -> None:
    assert styles("  - {host: 'a.example', ports: [443]}  # kept", "yaml") == {
        "host": "keyword",
        "'a.example'": "text",
        "ports": "keyword",
        "443": "number",
        "# kept": "comment",
    }
    assert styles('if test -n "$x"; then echo it#is; fi # so', "shell") == {
        "if": "keyword",
        '"$x"': "text",
        "then": "keyword",
        "fi": "keyword",
        "# so": "comment",
    }
    assert styles("const a = 1 // '", "javascript") == {"const": "keyword", "1": "number", "// '": "comment"}
    assert styles('{"a": true}', "json") == {'"a"': "text", "true": "keyword"}


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_a_text_is_the_same_with_colours_and_without(language: str) -> None:
    for line in ("", "a: 'b", '"' * 7, "# x # y", "a.b-c: {d: e}", f'"{"x" * 400}"', "\u00e9'\u00e9' \u4f60: 1"):
        assert "".join(piece.text for piece in coloured(line, language)) == line


@pytest.mark.timeout(60)  # each of these took minutes, in which the server answered nobody
@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("\t" + " " * 200_000, ""),
        (" " * 200_000, ""),
        ('"\\' * 100_000, "python"),
        ('"$(' * 60_000, "shell"),
        ("`" * 200_000, "javascript"),
        ("%" * 200_000, "yaml"),
        ('"' * 200_000, "yaml"),
    ],
)
def test_no_text_takes_long_to_be_shown(text: str, language: str) -> None:
    assert len(highlighted(text, language)) >= len(text)
