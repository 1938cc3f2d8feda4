"""Brackets of regular expressions that every program ends at the same place.

Some take the mark that ends a pattern for a plain character within brackets, some do not, and they differ in where
brackets end. So brackets hold neither that mark nor other brackets, but for classes such as `[:alpha:]`.
"""

from __future__ import annotations

import re


def pattern_until(mark: str) -> str:
    """The regular expression of a text up to the mark, with escapes and such brackets in it; without line breaks."""
    mark = re.escape(mark)
    bracket = rf"\[(?!\^?\])\^?(?:\[:[a-z]+:\]|[^\[\]\\\n{mark}]|\\[tnrswfv])*\]"
    return rf"(?:[^\[\\\n{mark}]|\\.|{bracket})*"
