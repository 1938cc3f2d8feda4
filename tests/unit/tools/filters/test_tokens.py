"""Credentials are found by their format, and little else is taken for one."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.tools.filters.tokens import tokens, with_context

from fumehood.secret_scan.values import replace_spans
from fumehood.tools.filters.tokens import FORMATS, find_tokens

TOKENS = dict(tokens())
ORDINARY = (Path(__file__).parent / "ordinary.txt").read_text().splitlines()
AROUND = ["{}", "token={}", 'token: "{}",', "<{}>", "({})", "see {} .", "x\n{}\ny"]


@pytest.mark.parametrize("name", TOKENS)
def test_a_token_is_found_whatever_stands_around_it(name: str) -> None:
    for around in AROUND:
        left = replace_spans(around.format(TOKENS[name]), find_tokens(around.format(TOKENS[name])))
        assert TOKENS[name][12:40] not in left
        assert "removed]" in left


@pytest.mark.parametrize(("text", "secret"), list(with_context()))
def test_a_secret_is_found_by_what_stands_before_it(text: str, secret: str) -> None:
    assert secret not in replace_spans(text, find_tokens(text))


@pytest.mark.parametrize("line", ORDINARY)
def test_ordinary_text_is_left_alone(line: str) -> None:
    assert list(find_tokens(line)) == []


def test_our_own_sources_hold_no_token() -> None:
    root = Path(__file__).parents[4]
    files = [*(root / "src").rglob("*.py"), *root.glob("*.md"), *(root / "docs").glob("*.md")]
    found = {str(file.relative_to(root)): list(find_tokens(file.read_text())) for file in files}
    assert {name: spans for name, spans in found.items() if spans} == {}


def test_every_format_has_a_sample() -> None:
    texts = [*TOKENS.values(), *(text for text, _ in with_context())]
    assert [each.what for each in FORMATS if not any(list(each.find(text)) for text in texts)] == []


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "piece", ["a", "eyJ", "-----BEGIN PRIVATE KEY-----", "://a:", "aws secret ", "AKIA", "sk-", "x://"]
)
def test_long_texts_are_searched_in_reasonable_time(piece: str) -> None:
    list(find_tokens(piece * (200_000 // len(piece))))
