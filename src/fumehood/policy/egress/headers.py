"""Headers and parameters of requests: how lenient servers read them, and which turn a request into another one."""

from __future__ import annotations

import re
from urllib.parse import unquote_plus

_PLAIN = re.compile(r"[A-Za-z0-9-]+", re.ASCII)
_PLAIN_VALUE = re.compile(r"[\t -~]*", re.ASCII)
_NOT_PLAIN = re.compile(r"[^a-z0-9-]", re.ASCII)
# Methods whose bodies every server reads. After another one a server may take the body for the next request.
METHODS_WITH_BODY = frozenset({"POST", "PUT", "PATCH", "PROPFIND", "PROPPATCH", "REPORT", "SEARCH", "QUERY"})
# Another method, path or host than the request's own, for frameworks and proxies that believe such a header.
_OVERRIDE = re.compile(
    r"x-(?:.*-)?(?:method|verb)|.*-override"
    r"|(?:x-)?(?:.*-)?(?:original|rewrite|rewritten|forwarded|real|waf|proxy)-(?:request-)?(?:url|uri|path|prefix|host)"
    r"|x-host|x-forwarded-server|forwarded"
)
_METHOD_PARAMETER = re.compile(r"-method|(?:.*-)?method-override|x-http-method")


def canonical_header(name: str) -> str:
    """The one name that CGI and its heirs make of all its spellings: `X_Key` and `x.key` are `x-key`."""
    return _NOT_PLAIN.sub("-", name.lower())


def is_plain_header(name: str, value: str) -> bool:
    """Whether no server takes it for a header of another name, or for two: some end a line at the byte 0x85."""
    return _PLAIN.fullmatch(name) is not None and _PLAIN_VALUE.fullmatch(value) is not None


def overriding_parameters(query: str) -> list[str]:
    """The names in a query by which some frameworks take the request for one of another method."""
    names = [canonical_header(unquote_plus(part.partition("=")[0])) for part in re.split("[&;]", query)]
    return [name for name in names if _METHOD_PARAMETER.fullmatch(name) is not None]


def overrides_request(name: str) -> bool:
    """Whether a header by this name can make a server answer another request than the first line's."""
    return _OVERRIDE.fullmatch(canonical_header(name)) is not None
