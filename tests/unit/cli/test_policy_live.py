"""How a test is tried in a real sandbox, or why not: planned before anything opens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fumehood import Policy
from fumehood.cli.policy.tests.live import Demand, Probe, RefusedCommand, Untried, plan, plan_demand
from fumehood.policy.attempts import Amount
from fumehood.policy.decisions import run_tests

RULES = [
    {"host": "read.example.com", "ports": [443], "methods": ["GET"]},
    {"host": "passed.example.com", "ports": [443]},
    {"host": "plain.example.com", "ports": [80]},
    {"host": "10.0.0.1", "ports": [443], "private": True},
]


def plan_of(kind: str, target: str) -> Probe | Demand | RefusedCommand | Untried:
    test = {kind: target, "expect": "deny"}
    policy = Policy(network={"allow": RULES}, commands={"allow": ["ls"]}, tests=[test])
    return plan(policy, next(run_tests(policy)))


@pytest.mark.parametrize(
    ("kind", "target", "expected"),
    [
        ("read", "/etc/shadow", Probe("read", "/etc/shadow")),
        ("write", "x", Probe("write", "/workspace/x", is_own=True)),
        ("connect", "evil.example:443", Probe("connect", "evil.example:443")),
        ("connect", "8.8.8.8:443", Probe("connect", "8.8.8.8:443")),
        ("http", "GET https://evil.example/", Probe("connect", "evil.example:443")),
        (
            "http",
            "POST https://read.example.com/x?y",
            Probe("request", ("POST", True, "read.example.com", 443, "/x?y")),
        ),
        ("command", "rm x", RefusedCommand("rm x")),
    ],
)
def test_what_is_to_be_refused_is_tried(kind: str, target: str, expected: Probe | RefusedCommand) -> None:
    assert plan_of(kind, target) == expected


@pytest.mark.parametrize(
    ("kind", "target"),
    [
        ("connect", "10.0.0.1:443"),
        ("http", "GET https://read.example.com/"),
        ("http", "GET https://passed.example.com/"),
        ("http", "GET http://passed.example.com:443/"),
        ("http", "GET https://plain.example.com:80/"),
        ("http", "POST http://plain.example.com/"),
        ("command", "ls"),
        ("resource", "timeout=1h"),
        ("resource", "cpus=1"),
    ],
)
def test_what_would_reach_a_server_run_or_wait_is_spared(kind: str, target: str) -> None:
    found = plan_of(kind, target)
    assert isinstance(found, Untried)
    assert found.reason


def test_of_a_connection_that_is_allowed_only_the_name_is_looked_up() -> None:
    assert plan_of("connect", "read.example.com:443") == Probe("find", "read.example.com:443")


NAMES = st.sampled_from(["memory", "processes", "open_files", "disk", "inodes", "output"])


@given(NAMES, st.integers(16 * 2**20, 2**32), st.integers(1, 2**40))
def test_no_more_is_asked_for_than_was_meant_and_beyond_the_limit_only_if_the_test_is(
    name: str, limit: int, amount: int
) -> None:
    limit = limit if name in ("memory", "disk", "output") else 16 + limit % 4096
    found = plan_demand(Policy(resources={name: limit}), Amount(name, amount))
    if isinstance(found, Demand):
        assert 0 <= found.amount <= amount
        assert (found.amount > limit) == (amount > limit)
        assert found.amount <= 2**30 + 64 * 2**20
    else:
        assert min(limit, amount) > 4096
