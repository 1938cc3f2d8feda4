"""SPECIFICATION.md and docs/features.md name the tests that hold what they say; this one holds the pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("page", ["SPECIFICATION.md", "docs/features.md"])
def test_every_test_that_a_page_names_exists(page: str) -> None:
    text = (ROOT / page).read_text()
    named = set(re.findall(r"`(test_\w+)`", text))
    paths = set(re.findall(r"`(tests/[\w/.]+)`", text)) - {"tests/unit/test_specification.py"}
    defined = {name for file in (ROOT / "tests").rglob("test_*.py") for name in _tests(file)}
    assert named
    assert named - defined == set()
    assert [path for path in paths if not (ROOT / path).exists()] == []


def _tests(file: Path) -> list[str]:
    return re.findall(r"^(?:async )?def (test_\w+)", file.read_text(), re.MULTILINE)
