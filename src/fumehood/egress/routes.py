"""Where a request goes: to the one server of its connection, or to the server in its URL, as at a proxy."""

from __future__ import annotations

import re
from typing import Protocol

from fumehood.egress.connection import Connection
from fumehood.egress.http1 import HttpRequest, MalformedMessageError
from fumehood.egress.log import EgressDeniedError
from fumehood.policy.decision import deny
from fumehood.policy.egress import Attempt, Route

_ABSOLUTE = re.compile(r"http://([^/?#@\s]+)(/[^\s#]*|\?[^\s#]*)?", re.ASCII)


class RouteChoice(Protocol):
    """Where a request goes: its route, and its target in origin form."""

    @property
    def route(self) -> Route | None:
        """The only one there is, if so."""
        ...

    def __call__(self, connection: Connection, request: HttpRequest) -> tuple[Route, str]: ...


class FixedRoute:
    """Every request of the connection goes to one server."""

    def __init__(self, route: Route) -> None:
        self.route = route

    def __call__(self, connection: Connection, request: HttpRequest) -> tuple[Route, str]:
        return self.route, request.target


class RequestedRoute:
    """Each request says itself where it goes, as a proxy's client does: `GET http://host/path`."""

    route = None

    def __call__(self, connection: Connection, request: HttpRequest) -> tuple[Route, str]:
        host, port, target = split_url(request.target)
        route = connection.judge(host, port)
        if route.protocol == "tls":
            attempt = Attempt("http", route.host, route.port, request.method)
            why = f"the rule is for {route.protocol}, and this is plain http"
            raise EgressDeniedError(deny(attempt, why, route.key, f"set protocol: http in {route.key}"))
        return route, target


def split_url(text: str) -> tuple[str, int, str]:
    """Host, port and target in origin form of the address that a proxy's client asks for."""
    match = _ABSOLUTE.fullmatch(text)
    if match is None:
        raise MalformedMessageError("a proxy needs a whole address, such as http://example.com/, or CONNECT")
    target = match[2] or "/"
    return *split_authority(match[1], 80), target if target.startswith("/") else f"/{target}"


def split_authority(text: str, usual_port: int | None) -> tuple[str, int]:
    """Host and port of `host:port`, as they were written."""
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(usual_port or "")
    if re.fullmatch(r"[0-9]{1,5}", port, re.ASCII) is None or not 0 < int(port) < 65536:
        raise MalformedMessageError("it names no port from 1 to 65535")
    return host.removeprefix("[").removesuffix("]"), int(port)
