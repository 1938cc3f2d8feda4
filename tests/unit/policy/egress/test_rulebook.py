"""What the rules say: nothing unless a rule covers it, and the strictest of those that do."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

import pytest

from fumehood.policy import Policy
from fumehood.policy.decision import Decision, deny
from fumehood.policy.egress import Attempt, Route, Rulebook, to_denial

SECRET = {"name": "TOKEN", "from_env": "TOKEN", "inject": {"host": "api.example.com"}}


def book(*rules: dict[str, Any], secrets: tuple[dict[str, Any], ...] = ()) -> Rulebook:
    allow = [{"host": "api.example.com", "ports": [443], **rule} for rule in rules]
    return Rulebook(Policy(network={"allow": allow}, secrets=list(secrets)))


def opened(rules: Rulebook, host: str = "api.example.com", port: int = 443) -> Route:
    route = rules.find_route(host, port)
    assert route is not None
    return route


def request(
    rules: Rulebook, method: str, target: str, *, host: str = "api.example.com", **more: Any
) -> Decision[Attempt]:
    return rules.decide_request(opened(rules), method, target, host, **more)


def test_without_rules_nothing_is_allowed() -> None:
    nothing = Rulebook(Policy())
    assert not nothing.decide_name("example.com").allowed
    decision = nothing.decide_connection("example.com", 443)
    assert (decision.rule, decision.reason) == ("", "no rule opens this name")
    assert decision.fix == "add {host: example.com, ports: [443]} to network.allow"


@pytest.mark.parametrize("name", ["api.example.com", "API.Example.COM", "api.example.com."])
def test_a_name_has_one_meaning_in_every_spelling(name: str) -> None:
    assert book({}).decide_name(name).allowed
    assert book({}).decide_connection(name, 443).allowed


@pytest.mark.parametrize(
    "name",
    [
        *("evil.com\0.example.com", "evil.com\n.example.com", "a\r\nb.example.com", "evil.com .example.com"),
        *("user@api.example.com", "evil.com/.example.com", "evil.com#.example.com", "evil.com?.example.com"),
        *("evil.com%00.example.com", "evil%2ecom.example.com", "evil.com:443.example.com", "evil.com\\.example.com"),
        *("", ".", "..", ".example.com", "a..example.com", "api.example.com..", "*.example.com", "-a.example.com"),
        *(
            "bücher.example.com",
            "\u212a.example.com",
            "a\u3002example.com",
            "a\u00adb.example.com",
            "a" * 64 + ".example.com",
        ),
        *("10.0.0.0/8", "0x7f.1", "127.1", "2130706433", "017700000001", "127.0.0.1.", "1.2.3.4.5", "[::1]", "::1%lo"),
    ],
)
def test_a_name_that_tricks_others_is_refused(name: str) -> None:
    wide = book({"host": "*.example.com"}, {"host": "*"}, {"host": "0.0.0.0/0", "private": True})
    assert not wide.decide_name(name).allowed
    decision = wide.decide_connection(name, 443)
    assert not decision.allowed
    assert str(to_denial(decision)).isprintable()


def test_a_suffix_means_names_below_it() -> None:
    rules = book({"host": "*.example.com"})
    assert rules.decide_connection("a.b.example.com", 443).allowed
    for host in ("example.com", "evilexample.com", "example.com.evil.com", "a.example.org"):
        assert not rules.decide_connection(host, 443).allowed


def test_any_name_is_not_any_address() -> None:
    rules = book({"host": "*", "private": True})
    assert rules.decide_connection("anything.at.all", 443).allowed
    decision = rules.decide_connection("8.8.8.8", 443)
    assert decision.reason == "no rule opens this address"
    assert decision.fix == "add {host: 8.8.8.8, ports: [443]} to network.allow"


def test_a_block_means_addresses_in_it() -> None:
    rules = book({"host": "10.0.0.0/8", "private": True}, {"host": "8.8.8.0/24"})
    assert rules.decide_connection("10.1.2.3", 443).allowed
    assert rules.decide_connection("::ffff:10.1.2.3", 443).allowed
    assert rules.decide_connection("8.8.8.8", 443).allowed
    assert not rules.decide_connection("11.0.0.1", 443).allowed


def test_an_address_that_is_not_public_needs_a_word() -> None:
    decision = book({"host": "10.0.0.1"}).decide_connection("10.0.0.1", 443)
    assert decision.reason == "10.0.0.1, which is private"
    assert decision.fix == "set private: true in network.allow[0]"


def test_credentials_of_the_cloud_have_to_be_listed_themselves() -> None:
    address = ip_address("169.254.169.254")
    for rule in ({"private": True}, {"host": "169.254.0.0/16", "private": True}):
        rules = book(rule)
        host = "api.example.com" if "host" not in rule else "169.254.169.254"
        decision = rules.decide_address(opened(rules, host), address)
        assert not decision.allowed
        assert decision.fix == "add {host: 169.254.169.254, ports: [443], private: true} to network.allow"
    assert book({"host": "169.254.169.254", "private": True}).decide_connection("169.254.169.254", 443).allowed


@pytest.mark.parametrize(
    "address",
    [
        *("169.254.42.42", "169.254.100.1", "169.254.129.2", "169.254.169.252", "169.254.1.1", "fe80::1"),
        *("fd00:42::42", "fd00:a9fe:a9fe::1", "64:ff9b:1::a9fe:a9fe"),
    ],
)
def test_no_name_leads_to_credentials_of_a_cloud(address: str) -> None:
    rules = book({"host": "*.corp.example", "private": True})
    decision = rules.decide_address(opened(rules, "x.corp.example"), ip_address(address))
    assert not decision.allowed
    written = f'"{address}"' if ":" in address else address
    assert decision.fix == f"add {{host: {written}, ports: [443], private: true}} to network.allow"
    assert book({"host": address, "private": True}).decide_connection(address, 443).allowed


@pytest.mark.parametrize("address", ["10.0.0.1", "127.0.0.1", "::1", "fd00::1", "64:ff9b:1::1", "::ffff:10.0.0.1"])
def test_a_name_must_not_lead_to_a_private_address(address: str) -> None:
    rules = book({}, {"host": "open.example.com", "private": True})
    assert not rules.decide_address(opened(rules), ip_address(address)).allowed
    assert rules.decide_address(opened(rules, "open.example.com"), ip_address(address)).allowed


@pytest.mark.parametrize("address", ["0.0.0.0", "224.0.0.1", "255.255.255.255", "::", "2002:a00:1::1"])
def test_some_addresses_are_nowhere(address: str) -> None:
    rules = book({"private": True})
    decision = rules.decide_address(opened(rules), ip_address(address))
    assert (decision.allowed, decision.fix) == (False, "")


def test_this_machine_itself_is_private_whatever_its_address() -> None:
    address = ip_address("8.8.8.8")
    for private in (False, True):
        rules = book({"private": private})
        assert rules.decide_own_address(opened(rules), address).allowed is private


def test_a_port_that_is_not_listed_is_closed() -> None:
    decision = book({}, {"ports": [8443]}).decide_connection("api.example.com", 22)
    assert decision.rule == "network.allow[0]"
    assert decision.fix == "add 22 to ports of network.allow[0]"


def test_a_long_name_below_a_wildcard_could_carry_data() -> None:
    rules = book({"host": "*.example.com"})
    fits, long = "a" * 32 + "." + "b" * 31 + ".example.com", "a" * 32 + "." + "b" * 32 + ".example.com"
    assert rules.decide_name(fits).allowed
    for decision in (rules.decide_name(long), rules.decide_connection(long, 443)):
        assert "could carry data" in decision.reason
    assert book({"host": long}).decide_name(long).allowed


def test_the_most_exact_host_decides() -> None:
    rules = book({"host": "*"}, {"host": "*.example.com", "methods": ["GET", "PUT"]}, {"methods": ["GET"]})
    assert not request(rules, "PUT", "/").allowed
    assert opened(rules, "other.example.com").rules[0].index == 1
    assert not opened(rules, "other.org").reads_requests


def test_a_wider_rule_does_not_lend_its_private_addresses() -> None:
    rules = book({"host": "*.example.com", "private": True}, {})
    assert not rules.decide_address(opened(rules), ip_address("10.0.0.1")).allowed


def test_of_equal_hosts_the_strictest_holds() -> None:
    rules = book({"private": True, "protocol": "tcp"}, {"methods": ["GET"], "protocol": "tls"}, {"protocol": "http"})
    route = opened(rules)
    assert (route.protocol, route.private, route.reads_requests) == ("tls", False, True)
    assert not request(rules, "POST", "/").allowed


def test_rules_for_several_requests_add_up() -> None:
    rules = book({"methods": ["GET"], "paths": ["/repos/**"]}, {"methods": ["POST"], "paths": ["/graphql"]})
    assert request(rules, "GET", "/repos/x").rule == "network.allow[0]"
    assert request(rules, "POST", "/graphql").rule == "network.allow[1]"
    assert not request(rules, "POST", "/repos/x").allowed
    assert not request(rules, "GET", "/graphql").allowed


def test_a_refused_request_says_what_to_add() -> None:
    rules = book({"methods": ["GET"], "paths": ["/repos/**"]})
    decision = request(rules, "POST", "/repos/x?token=1")
    assert str(decision.attempt) == "POST https://api.example.com:443/repos/x"
    assert decision.reason == "the rule allows only GET here"
    assert decision.fix == "add POST to methods of network.allow[0]"
    assert request(rules, "GET", "/user").fix == "add /user to paths of network.allow[0]"
    assert request(rules, "PUT", "/user").fix.endswith("add /user to paths of network.allow[0], and PUT to its methods")


@pytest.mark.parametrize("host", ["api.example.com", "API.example.com", "api.example.com.", "api.example.com:443"])
def test_the_host_header_names_the_same_server(host: str) -> None:
    assert request(book({"methods": ["GET"]}), "GET", "/", host=host).allowed


@pytest.mark.parametrize(
    "host",
    ["evil.com", "", "api.example.com:80", "api.example.com:443:443", "api.example.com, evil.com", "x@api.example.com"],
)
def test_another_host_header_is_refused(host: str) -> None:
    decision = request(book({"methods": ["GET"]}), "GET", "/", host=host)
    assert decision.reason == "the Host header names another server than api.example.com"


@pytest.mark.parametrize("method", ["CONNECT", "PRI", "get", "G ET", "", "GET\n", "X" * 30])
def test_a_method_that_is_not_listed_is_refused(method: str) -> None:
    assert not request(book({"methods": ["GET"]}), method, "/").allowed


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *(("GET", "/**"), ("GET", "/*"), ("GET", "/[a]"), ("GET", "/x?/**"), ("GET", '/x,"/**"'), ("GET", "/a%2a")),
        *(("GET", "/" + "A" * 4000), ("PUT", "/**"), ("M-SEARCH", "/user"), ("M-SEARCH", "/repos/x")),
    ],
)
def test_a_program_cannot_choose_what_is_suggested(method: str, path: str) -> None:
    decision = request(book({"methods": ["GET"], "paths": ["/repos/x"]}), method, path)
    assert not decision.allowed
    assert decision.fix in ("", "add /x to paths of network.allow[0]")


def test_a_denial_is_short_whatever_a_program_sends() -> None:
    rules = book({"methods": ["GET"], "paths": ["/repos/**"]})
    long = "a" * 60_000
    for decision in (
        request(rules, "GET", "/repos/x", headers=[f"x-{long}-override"]),
        request(rules, "GET", f"/repos/x?{long}_method=PUT"),
        request(rules, "GET", f"/{long}"),
        request(rules, "GET", "/repos/x", host=long),
        deny(Attempt("http", long, 443, long, long), f"{long}\n", fix=long),
    ):
        denial = to_denial(decision)
        assert len(str(denial)) < 4000
        assert denial.remedy in ("", "leave methods and paths out of network.allow[0]")
        assert str(denial).isprintable()


def test_a_request_cannot_be_turned_into_another_one_by_a_header() -> None:
    rules = book({"methods": ["POST"]})
    assert not request(rules, "POST", "/", headers=["x-http-method-override"]).allowed
    assert not request(rules, "POST", "/", headers=["x-original-url"]).allowed
    assert request(book({}), "POST", "/", headers=["x-original-url"]).allowed


def test_a_credential_is_bound_to_its_host_and_to_tls() -> None:
    rules = book({}, {"host": "*.example.com"}, {"ports": [80, 8080]}, secrets=(SECRET,))
    assert [secret.name for secret in opened(rules).secrets] == ["TOKEN"]
    assert opened(rules).reads_requests
    assert opened(rules, "other.example.com").secrets == ()
    assert opened(rules, port=80).secrets == ()
    assert opened(rules, port=8080).secrets == ()


def test_a_credential_is_not_echoed() -> None:
    assert not request(book({}, secrets=(SECRET,)), "TRACE", "/").allowed
    assert request(book({}), "TRACE", "/").allowed


@pytest.mark.parametrize(
    ("server_name", "more", "why"),
    [
        (None, {}, "names no server"),
        ("evil.com", {}, "another server, evil.com"),
        ("api.example.com.", {}, "ends in a dot"),
        ("api.example.com\0", {}, "control"),
        ("10.0.0.1", {}, "another server"),
        ("api.example.com", {"protocols": ["h2"]}, "HTTP/1.1 only"),
    ],
)
def test_a_handshake_that_cannot_be_judged_is_refused(server_name: str | None, more: dict[str, Any], why: str) -> None:
    rules = book({"methods": ["GET"]})
    assert why in rules.decide_hello(opened(rules), server_name, **more).reason
    assert rules.decide_hello(opened(rules), "API.example.com", protocols=["h2", "http/1.1"]).allowed


def test_a_hidden_name_matters_only_where_nobody_reads_requests() -> None:
    opaque, read = book({}), book({"paths": ["/**"]})
    refused = opaque.decide_hello(opened(opaque), "api.example.com", encrypted=True)
    assert refused.reason == "the handshake hides its server name (ECH)"
    assert refused.fix == 'add paths: ["/**"] to network.allow[0], so that its requests are read'
    assert read.decide_hello(opened(read), "api.example.com", encrypted=True).allowed
    assert not read.decide_hello(opened(read), "evil.com", encrypted=True).allowed


def test_a_handshake_with_an_address_needs_no_name() -> None:
    rules = book({"host": "8.8.8.8"})
    route = opened(rules, "8.8.8.8")
    assert rules.decide_hello(route, None).allowed
    assert not rules.decide_hello(route, "evil.com").allowed


def test_a_client_may_speak_what_it_likes_where_requests_are_not_read() -> None:
    rules = book({})
    assert rules.decide_hello(opened(rules), "api.example.com", protocols=["h2"]).allowed
