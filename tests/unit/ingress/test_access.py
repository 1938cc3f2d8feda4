"""Who may use a published port, and what the server inside sees of a request."""

from __future__ import annotations

import pytest

from fumehood.egress.http1 import HttpRequest, parse_request
from fumehood.ingress.access import TOKEN_HEADER, TOKEN_NAME, Access, Admitted, Refused, Welcome, returned

ACCESS = Access(8000, 40000)
TOKEN = ACCESS.headers[TOKEN_HEADER]
NAME = ACCESS.url.split("/")[2]
COOKIE = f"Cookie: {TOKEN_NAME}={TOKEN}"


def request(target: str, *headers: str, method: str = "GET", host: str = NAME) -> HttpRequest:
    return parse_request("\r\n".join([f"{method} {target} HTTP/1.1", f"Host: {host}", *headers]).encode())


def test_a_visit_with_the_token_goes_on_without_it_and_has_a_cookie() -> None:
    decision = ACCESS.decide(request(f"/a//b?x=1&{TOKEN_NAME}={TOKEN}&y"))
    assert isinstance(decision, Welcome)
    assert decision.location == f"http://{NAME}/a//b?x=1&y"
    assert decision.cookie == f"{TOKEN_NAME}={TOKEN}; Path=/; HttpOnly; SameSite=Strict"
    assert not decision.is_from_elsewhere


def test_a_link_of_another_site_leads_in_by_a_page_of_ours() -> None:
    decision = ACCESS.decide(request(f"/?{TOKEN_NAME}={TOKEN}", "Sec-Fetch-Site: cross-site"))
    assert isinstance(decision, Welcome)
    assert decision.is_from_elsewhere
    assert decision.location == f"http://{NAME}/"


@pytest.mark.parametrize("host", [NAME, "127.0.0.1:40000", "localhost:40000"], ids=["name", "address", "localhost"])
def test_a_program_shows_the_token_in_a_header(host: str) -> None:
    decision = ACCESS.decide(request("/x?y", f"{TOKEN_HEADER}: {TOKEN}", "Accept: a", host=host))
    assert decision == Admitted("/x?y", [("Host", host), ("Accept", "a")])


def test_cookies_of_the_application_pass_and_ours_does_not() -> None:
    headers = (f"Cookie: a=1; {TOKEN_NAME}={TOKEN}; b=2", f"Origin: http://{NAME}", "Sec-Fetch-Site: same-origin")
    decision = ACCESS.decide(request("/", *headers, method="POST"))
    assert isinstance(decision, Admitted)
    assert ("Cookie", "a=1; b=2") in decision.headers
    assert TOKEN not in str(decision)


@pytest.mark.parametrize(
    "header",
    [f"Referer: http://{NAME}/?{TOKEN_NAME}={TOKEN}", f"X-Else: {TOKEN}", f"Cookie: other={TOKEN}"],
    ids=["referer", "another header", "another cookie"],
)
def test_no_header_brings_the_token_inside(header: str) -> None:
    decision = ACCESS.decide(request("/", COOKIE, header))
    assert isinstance(decision, Admitted)
    assert TOKEN not in str(decision)


REFUSED = {
    "nothing": request("/"),
    "a wrong token": request("/", f"{TOKEN_HEADER}: {TOKEN[:-1]}"),
    "an empty token": request("/", f"{TOKEN_HEADER}: "),
    "a token that is no text": request("/", f"{TOKEN_HEADER}: \xff".encode().decode("latin-1")),
    "a wrong token in the address": request(f"/?{TOKEN_NAME}=x"),
    "two tokens in the address": request(f"/?{TOKEN_NAME}={TOKEN}&{TOKEN_NAME}=x"),
    "a token in the address of a POST": request(f"/?{TOKEN_NAME}={TOKEN}", method="POST"),
    "another host": request("/", f"{TOKEN_HEADER}: {TOKEN}", host="attacker.example:40000"),
    "another port": request("/", f"{TOKEN_HEADER}: {TOKEN}", host="127.0.0.1:40001"),
    "no port": request("/", f"{TOKEN_HEADER}: {TOKEN}", host="127.0.0.1"),
    "a cookie at an address that others share": request("/", COOKIE, host="127.0.0.1:40000"),
    "another origin": request("/", COOKIE, "Origin: http://attacker.example"),
    "no origin that has a name": request("/", COOKIE, "Origin: null"),
    "the origin of another port": request("/", COOKIE, "Origin: http://127.0.0.1:40000"),
    "another site": request("/", COOKIE, "Sec-Fetch-Site: cross-site"),
    "another port of the site": request("/", COOKIE, "Sec-Fetch-Site: same-site"),
    "a proxy's target": request("http://example.com/", f"{TOKEN_HEADER}: {TOKEN}"),
    "a tunnel": request("example.com:443", f"{TOKEN_HEADER}: {TOKEN}", method="CONNECT"),
    "the token in the path": request(f"/{TOKEN}", COOKIE),
}


@pytest.mark.parametrize("refused", REFUSED.values(), ids=REFUSED)
def test_it_is_refused(refused: HttpRequest) -> None:
    assert isinstance(ACCESS.decide(refused), Refused)


def test_a_response_takes_nothing_over() -> None:
    headers = [
        ("Set-Cookie", f"{TOKEN_NAME}=x"),
        ("set-cookie", f"={TOKEN_NAME}=x"),
        ("Set-Cookie", f" {TOKEN_NAME.upper()} =x; Path=/"),
        ("Set-Cookie", "app=1; Domain=localhost; Path=/"),
        ("Clear-Site-Data", '"*"'),
        ("Alt-Svc", 'h2="attacker.example:443"'),
        ("Connection", "close"),
        ("X-App", "1"),
    ]
    assert returned(headers) == [("X-App", "1"), ("Set-Cookie", "app=1; Path=/")]


def test_what_is_shown_of_it_does_not_hold_the_token() -> None:
    assert TOKEN not in repr(ACCESS)
