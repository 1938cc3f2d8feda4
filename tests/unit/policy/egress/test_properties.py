"""What holds for any rules and any attempt."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fumehood.policy import Policy
from fumehood.policy.egress import Rulebook, normalise, to_denial

HOSTS = ["a.com", "x.a.com", "y.x.a.com", "b.org", "10.0.0.1", "8.8.8.8"]
RULES = st.fixed_dictionaries(
    {
        "host": st.sampled_from(
            ["a.com", "x.a.com", "*.a.com", "*.x.a.com", "*", "10.0.0.0/8", "10.0.0.1", "0.0.0.0/0"]
        ),
        "ports": st.lists(st.sampled_from([80, 443]), min_size=1, unique=True),
    },
    optional={
        "protocol": st.sampled_from(["tls", "http"]),
        "methods": st.lists(st.sampled_from(["GET", "PUT"]), min_size=1, unique=True),
        "paths": st.lists(st.sampled_from(["/x", "/x/**", "/**"]), min_size=1, unique=True),
        "private": st.booleans(),
    },
)
ATTEMPTS = st.tuples(
    st.sampled_from(HOSTS),
    st.sampled_from([80, 443]),
    st.sampled_from(["GET", "PUT", "POST"]),
    st.sampled_from(["/", "/x", "/x/y", "/x/../y", "/%78"]),
    st.sampled_from(["8.8.8.8", "10.0.0.1", "169.254.169.254", "::1"]),
)
Attempted = tuple[str, int, str, str, str]


def allows(rules: list[dict[str, Any]], attempt: Attempted) -> bool:
    """The whole way of a request: connection, address, handshake, request."""
    host, port, method, path, address = attempt
    book = Rulebook(Policy(network={"allow": rules}))
    route = book.find_route(host, port)
    if not book.decide_connection(host, port).allowed or route is None:
        return False
    return (
        book.decide_address(route, ip_address(address)).allowed
        and book.decide_request(route, method, path, host).allowed
    )


@given(st.lists(RULES, max_size=4), RULES, ATTEMPTS)
def test_a_rule_opens_nothing_but_what_it_covers_itself(
    rules: list[dict[str, Any]], more: dict[str, Any], attempt: Attempted
) -> None:
    if not allows(rules, attempt) and not allows([more], attempt):
        assert not allows([*rules, more], attempt)


@given(st.permutations(range(3)), st.lists(RULES, min_size=3, max_size=3), ATTEMPTS)
def test_the_order_of_rules_says_nothing(order: list[int], rules: list[dict[str, Any]], attempt: Attempted) -> None:
    assert allows(rules, attempt) == allows([rules[index] for index in order], attempt)


@given(st.lists(RULES, max_size=3), ATTEMPTS)
def test_every_decision_has_a_rule_or_a_reason(rules: list[dict[str, Any]], attempt: Attempted) -> None:
    decision = Rulebook(Policy(network={"allow": rules})).decide_connection(attempt[0], attempt[1])
    assert bool(decision.rule) if decision.allowed else bool(decision.reason)
    if not decision.allowed:
        assert to_denial(decision).why == decision.reason


@settings(max_examples=200)
@given(st.one_of(st.text(max_size=30), st.from_regex(r"[a-zA-Z0-9.:*%-]{0,30}", fullmatch=True)))
def test_normalising_twice_changes_nothing(text: str) -> None:
    try:
        once = normalise(text)
    except ValueError:
        return
    assert normalise(once) == once
    assert once == once.lower()
    assert once.isascii()
