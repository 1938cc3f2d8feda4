"""Sentences in the width of a terminal that nobody made larger."""

from __future__ import annotations

import textwrap

from fumehood.characters import neutralise

COLUMNS = 80


def wrapped(text: str, *, indent: str) -> list[str]:
    return textwrap.wrap(
        neutralise(text),
        COLUMNS,
        initial_indent=indent,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=False,
    )
