"""Decides whether a request may reach the server inside, and what of it does. Pure.

The browser's way: an address with the token in its query, which becomes a cookie and leaves the address. The name of
that address is random and of this port alone, so its cookies, storage and service workers are no other server's. The
program's way: a header. Whatever carried the token is taken out before the server inside sees the request.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass

from fumehood.egress.http1 import Headers, HttpRequest, forwarded, values_of

TOKEN_NAME = "fumehood-token"
"""Of the cookie and of the parameter in the query."""
TOKEN_HEADER = "X-Fumehood-Token"
_OWN_SITE = frozenset({"same-origin", "none"})


@dataclass(frozen=True, slots=True)
class Refused:
    reason: str


@dataclass(frozen=True, slots=True)
class Welcome:
    """The token is in the address: it becomes a cookie, and the browser goes on to the address without it."""

    location: str
    cookie: str
    is_from_elsewhere: bool
    """A link of another site led here: a redirect would still count as that site's, and go without the cookie."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """What the server inside gets to see."""

    target: str
    headers: Headers


class Access:
    """The token and the addresses of one published port."""

    def __init__(self, port: int, host_port: int) -> None:
        self._token = secrets.token_urlsafe(32)
        self._name = f"{port}-{secrets.token_hex(8)}.localhost:{host_port}"
        self._hosts = frozenset({self._name, f"127.0.0.1:{host_port}", f"localhost:{host_port}"})
        self.address = f"http://127.0.0.1:{host_port}"

    def __repr__(self) -> str:
        return f"Access({self._name!r})"

    @property
    def url(self) -> str:
        """For a browser."""
        return f"http://{self._name}/?{TOKEN_NAME}={self._token}"

    @property
    def headers(self) -> dict[str, str]:
        """For a program, with requests to `address`."""
        return {TOKEN_HEADER: self._token}

    def decide(self, request: HttpRequest) -> Refused | Welcome | Admitted:
        host = request.host.lower()
        if host not in self._hosts:
            return Refused("it is for another host")
        if not request.target.startswith("/"):
            return Refused("its target is not a path")
        path, shown = _split_token(request.target)
        if shown and request.method == "GET":
            return self._welcome(request, host, path, shown)
        if not self._has_token(request.headers, has_cookie=host == self._name):
            return Refused("it has no valid token")
        if reason := _from_elsewhere(request.headers, host):
            return Refused(reason)
        return self._admitted(request, path)

    def _welcome(self, request: HttpRequest, host: str, path: str, shown: list[str]) -> Refused | Welcome:
        if not all(map(self._is_token, shown)):
            return Refused("it has no valid token")
        if host != self._name:
            return Refused("it is for another host")
        cookie = f"{TOKEN_NAME}={self._token}; Path=/; HttpOnly; SameSite=Strict"
        site = values_of(request.headers, "sec-fetch-site")
        return Welcome(f"http://{self._name}{path}", cookie, not _OWN_SITE.issuperset(site))

    def _has_token(self, headers: Headers, *, has_cookie: bool) -> bool:
        given = values_of(headers, TOKEN_HEADER.lower())
        if has_cookie:
            given += [value for name, value in _cookies(headers) if name == TOKEN_NAME]
        return any(map(self._is_token, given))

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode("latin-1", "replace"), self._token.encode())

    def _admitted(self, request: HttpRequest, path: str) -> Refused | Admitted:
        """Without anything that holds the token, wherever a client may have put it."""
        if self._token in path:
            return Refused("its path holds the token")
        kept = forwarded(request.headers, (TOKEN_HEADER.lower(), "cookie"))
        headers = [(name, value) for name, value in kept if self._token not in value]
        others = [f"{name}={value}" for name, value in _cookies(request.headers) if not self._is_ours(name, value)]
        return Admitted(path, headers + ([("Cookie", "; ".join(others))] if others else []))

    def _is_ours(self, name: str, value: str) -> bool:
        return name == TOKEN_NAME or self._token in name + value


def _split_token(target: str) -> tuple[str, list[str]]:
    """The target without our parameter, and the values that this had."""
    path, mark, query = target.partition("?")
    parts = query.split("&")
    ours = [part for part in parts if part.partition("=")[0] == TOKEN_NAME]
    others = [part for part in parts if part not in ours]
    rest = path + mark + "&".join(others) if any(others) or not ours else path
    return rest, [part.partition("=")[2] for part in ours]


def _from_elsewhere(headers: Headers, host: str) -> str:
    """Why a request is another page's, or nothing. A browser says so, and a program that is none has no reason to."""
    if any(origin != f"http://{host}" for origin in values_of(headers, "origin")):
        return "a page of another origin sent it"
    if not _OWN_SITE.issuperset(values_of(headers, "sec-fetch-site")):
        return "a page of another site sent it"
    return ""


def _cookies(headers: Headers) -> list[tuple[str, str]]:
    pairs = [pair.strip() for value in values_of(headers, "cookie") for pair in value.split(";")]
    return [(name.strip(), value.strip()) for name, _, value in (pair.partition("=") for pair in pairs if pair)]


def returned(headers: Headers) -> Headers:
    """The headers of a response that go on to the client: none that would take over its access, or move it elsewhere.

    `Clear-Site-Data` would delete our cookie, `Alt-Svc` lead to another address.
    """
    kept = forwarded(headers, ("alt-svc", "clear-site-data", "set-cookie"))
    cookies = [value for name, value in headers if name.lower() == "set-cookie"]
    return kept + [("Set-Cookie", _host_only(value)) for value in cookies if not _is_token_cookie(value)]


def _is_token_cookie(value: str) -> bool:
    """Browsers send a cookie without a name as its value alone, which may look like ours."""
    name, _, rest = value.partition(";")[0].partition("=")
    return TOKEN_NAME in (name.strip().lower(), rest.partition("=")[0].strip().lower() if not name.strip() else "")


def _host_only(value: str) -> str:
    first, *attributes = value.split(";")
    kept = [each for each in attributes if each.partition("=")[0].strip().lower() != "domain"]
    return ";".join([first, *kept])
