"""Events of a task as lines of JSON."""

from __future__ import annotations

import io
import json

import pytest

from fumehood.agents.events import TextDelta
from fumehood.cli.agent.renderers import JsonLines

DANGEROUS = "a\nb \x1b[31m \x7f \x85 \x9b2J \u2028 \u202e \ud800 \U000e0041"


def printed(text: str, encoding: str, monkeypatch: pytest.MonkeyPatch) -> str:
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding=encoding))
    JsonLines().show(TextDelta("a", text))
    return written.getvalue().decode(encoding)


def test_letters_of_all_languages_are_written_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    said = 'Grüße, "世界" \U0001f680'
    line = printed(said, "utf-8", monkeypatch)
    assert "Grüße" in line
    assert "世界" in line
    assert "\U0001f680" in line
    assert json.loads(line)["text"] == said


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_where_they_cannot_be_written_they_are_escaped(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    line = printed("Grüße 世界", encoding, monkeypatch)
    assert line.isascii()
    assert json.loads(line)["text"] == "Grüße 世界"


def test_an_event_is_one_line_without_anything_that_a_terminal_obeys(monkeypatch: pytest.MonkeyPatch) -> None:
    line = printed(f"ü {DANGEROUS}", "utf-8", monkeypatch)
    assert "ü" in line
    assert line.removesuffix("\n").isprintable()
    assert len(line.splitlines()) == 1
    assert json.loads(line)["text"] == f"ü {DANGEROUS}"
