"""A Python source is UTF-8, whatever it says of itself: what people and rules have judged is what runs.

A line such as `# coding: utf-7` makes Python read the same bytes as another text, in which a comment may be code. It
may stand there where it changes nothing; otherwise the source is refused, and not only read without it: a program can
have its own file read once more, as `multiprocessing` does.
"""

from __future__ import annotations

import re

# In the first line, or in the second after one without code.
_DECLARED = re.compile(
    rb"(?:\xef\xbb\xbf)?([ \t\f]*(?:#[^\r\n]*)?(?:\r\n?|\n))??[ \t\f]*#[^\r\n]*?coding[:=][ \t]*([-\w.]+)"
)
_BYTE_ORDER_MARK = "\ufeff"


def text_of(source: bytes, name: str) -> str:
    """Raises SyntaxError, as Python itself does for what it cannot read."""
    try:
        text = source.decode().removeprefix(_BYTE_ORDER_MARK)
    except UnicodeDecodeError as error:
        line = source.count(b"\n", 0, error.start) + 1
        raise SyntaxError(f"(unicode error) {error}; a source is UTF-8", (name, line, None, None)) from None
    declared = _DECLARED.match(source)
    if declared and (problem := _problem(source, text, declared[2].decode())):
        raise SyntaxError(problem, (name, 2 if declared[1] else 1, None, None))
    return text


def _problem(source: bytes, text: str, encoding: str) -> str | None:
    spelled = encoding.lower().replace("_", "-")
    if spelled == "utf-8" or spelled.startswith("utf-8-"):  # also as an editor writes it: utf-8-unix
        return None
    try:
        if source.decode(encoding).removeprefix(_BYTE_ORDER_MARK) == text:
            return None
    except LookupError:
        return f"unknown encoding: {encoding}"
    except ValueError:
        pass
    return f"a source is UTF-8, and would be another text in {encoding}"
