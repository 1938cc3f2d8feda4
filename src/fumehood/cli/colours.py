"""Colour where somebody sees it: on a terminal, and not when NO_COLOR says otherwise."""

from __future__ import annotations

import os
import sys

GREEN, YELLOW, RED, DIM, BOLD = "32", "33", "31", "2", "1"


def paint(text: str, colour: str) -> str:
    return f"\x1b[{colour}m{text}\x1b[0m" if _is_wanted() else text


def _is_wanted() -> bool:
    # https://no-color.org: any value that is not empty.
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and sys.stdout.isatty()
