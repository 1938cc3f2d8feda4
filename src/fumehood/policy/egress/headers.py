"""Headers, methods and parameters of requests: how lenient servers read them, and what could be another request."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import unquote_plus

_PLAIN = re.compile(r"[A-Za-z0-9-]+", re.ASCII)
_PLAIN_VALUE = re.compile(r"[\t -~]*", re.ASCII)
_NOT_PLAIN = re.compile(r"[^a-z0-9-]", re.ASCII)
# Methods whose bodies every server reads. After another one a server may take the body for the next request.
METHODS_WITH_BODY = frozenset({"POST", "PUT", "PATCH", "PROPFIND", "PROPPATCH", "REPORT", "SEARCH", "QUERY"})
# Methods that are about the request's own path and no other, as COPY, MOVE and LINK are not.
USUAL_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY")
_NAMES_A_METHOD = re.compile(r"(?:method|methodoverride|verb)\Z")
_NOT_A_LETTER = re.compile(r"[^a-z]", re.ASCII)
# Where PHP and servers in C stop reading the name of a parameter.
_END_OF_NAME = re.compile(r"[\0\[]")
_MOST_DECODINGS = 3


def canonical_header(name: str) -> str:
    """The one name that CGI and its heirs make of all its spellings: `X_Key` and `x.key` are `x-key`."""
    return _NOT_PLAIN.sub("-", name.lower())


def is_plain_header(name: str, value: str) -> bool:
    """Whether no server takes it for a header of another name, or for two: some end a line at the byte 0x85."""
    return _PLAIN.fullmatch(name) is not None and _PLAIN_VALUE.fullmatch(value) is not None


def overriding_parameters(query: str) -> list[str]:
    """The names in a query by which a framework could take the request for one of another method."""
    names = [part.partition("=")[0] for part in re.split("[&;]", query)]
    return [name for name in names if any(_NAMES_A_METHOD.search(reading) for reading in _readings(name))]


def _readings(name: str) -> Iterator[str]:
    """Its letters, as servers find them that decode once, or once too often."""
    for _ in range(_MOST_DECODINGS):
        name = unquote_plus(name)
        yield _NOT_A_LETTER.sub("", _END_OF_NAME.split(name, 1)[0].lower())
