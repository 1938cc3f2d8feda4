"""Paths of requests: every way in which a server might read one, so that a rule holds for all of them.

A server may decode a path once, twice or not at all, may take a backslash for a slash, and may stop reading at a
semicolon or an encoded question mark, in each name or for good. Where readings differ, a rule has to cover each; where
one of them climbs, the request is refused.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from urllib.parse import unquote_to_bytes

# Everything visible but #, which a client keeps to itself.
_TARGET = re.compile(r"/[!-\"$-~]*", re.ASCII)
_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_UNRESERVED = re.compile(r"%(?:2[dD]|2[eE]|3[0-9]|4[1-9a-fA-F]|5[0-9aA]|5[fF]|6[1-9a-fA-F]|7[0-9aA]|7[eE])")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_CLIMB = re.compile(r"(?:\A|/)\s*\.\.?\s*(?=[;/]|\Z)")
_PARAMETERS = re.compile(r";[^/]*")
# What no server reads in another way, no pattern as more than itself, and no reader of a suggestion as something else.
_PLAIN = re.compile(r"(?!.*//|.*/\.{1,2}(?:/|\Z))/[A-Za-z0-9/._~:@=+$!-]{0,199}", re.ASCII)
_MOST_READINGS = 32
_MOST_CHARACTERS = 4096


class AmbiguousPathError(ValueError):
    """A path that servers could read as another one; the text says how."""


def split_target(target: str) -> str:
    """The path of a target in origin form, such as `/a?b`; everything else is refused."""
    if _TARGET.fullmatch(target) is None:
        raise AmbiguousPathError("the target is no plain path, such as /a/b?c=d")
    return target.partition("?")[0]


def is_plain_path(path: str) -> bool:
    """Whether a pattern of the same spelling means this path alone, and it is short enough to be shown."""
    return _PLAIN.fullmatch(path) is not None


def readings(path: str) -> set[str]:
    """Every path that a server might take this for; refused when one of them could climb or has a hidden end."""
    if len(path) > _MOST_CHARACTERS:
        raise AmbiguousPathError(f"the path is longer than {_MOST_CHARACTERS} characters")
    found: set[str] = set()
    waiting = {_decode_unreserved(path)}
    while waiting:
        reading = waiting.pop()
        _refuse_tricks(reading)
        found.add(reading)
        if len(found) > _MOST_READINGS:
            raise AmbiguousPathError("the path can be read in too many ways")
        waiting |= {rewrite(reading) for rewrite in _REWRITES} - found
    return found


def _decode_unreserved(path: str) -> str:
    """Escapes that mean the same as the character itself (RFC 3986, 6.2.2.2)."""
    if _ESCAPE.search(path) is not None:
        raise AmbiguousPathError("the path has a % that escapes nothing")
    return _UNRESERVED.sub(lambda match: chr(int(match[0][1:], 16)), path)


def _decode(path: str) -> str:
    try:
        return unquote_to_bytes(path).decode()
    except UnicodeDecodeError:
        raise AmbiguousPathError("the path does not decode to UTF-8") from None


def _normalise(path: str) -> str:
    return unicodedata.normalize("NFKC", path)


_REWRITES: tuple[Callable[[str], str], ...] = (
    _decode,
    _normalise,
    lambda path: path.replace("\\", "/"),
    lambda path: path.partition("?")[0],
    lambda path: path.partition(";")[0],
    lambda path: _PARAMETERS.sub("", path),
)


def _refuse_tricks(path: str) -> None:
    if _CONTROL.search(path) is not None:
        raise AmbiguousPathError("the path hides control characters")
    if "#" in path:
        raise AmbiguousPathError("the path hides a #, where some servers stop reading")
    if _CLIMB.search(path) is not None:
        raise AmbiguousPathError("the path climbs with . or ..")
    if "//" in path:
        raise AmbiguousPathError("the path has an empty name between two slashes")
