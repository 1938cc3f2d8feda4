"""`GET https://host/path`: a request, as tests and questions name it. Taken apart by hand, as nobody may guess here."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fumehood.policy.hosts import check_host

_REQUEST = re.compile(
    r"(?P<method>[A-Z]{1,20}) (?P<scheme>https?)://"
    r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s/?#:\[\]]+)(?::(?P<port>[1-9][0-9]{0,4}))?(?P<target>[/?][^\s#]*)?",
    re.ASCII,
)
_USUAL_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    secure: bool
    host: str
    port: int
    target: str
    """The path and the query, as they stand in the first line of a request."""


def parse_request(text: str) -> Request:
    found = _REQUEST.fullmatch(text)
    if found is None:
        raise ValueError('must be a method and an address, such as "GET https://api.github.com/repos/x"')
    if "@" in found["host"]:
        raise ValueError("must not hold a user's name in front of the host; programs disagree on what it means")
    port = int(found["port"] or _USUAL_PORTS[found["scheme"]])
    if port > 65535:
        raise ValueError(f"has the port {port}; the largest is 65535")
    target = found["target"] or "/"
    host = check_host(found["host"].removeprefix("[").removesuffix("]"))
    is_secure = found["scheme"] == "https"
    return Request(found["method"], is_secure, host, port, target if target.startswith("/") else "/" + target)


def check_request(text: str) -> str:
    parse_request(text)
    return text
