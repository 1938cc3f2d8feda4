"""Decides attempts by a policy, and runs the tests that it carries."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import assert_never

from fumehood.errors import PolicyError, UsageError
from fumehood.policy.attempts import (
    ATTEMPTS,
    Amount,
    AttemptKind,
    Expectation,
    HttpAttempt,
    parse_amount,
    parse_request,
)
from fumehood.policy.commands import judge
from fumehood.policy.commands.decision import shortened
from fumehood.policy.decision import Decision
from fumehood.policy.decisions import files
from fumehood.policy.egress import Attempt, Route, Rulebook, is_plain_path
from fumehood.policy.hosts import endpoint, is_address, split_endpoint
from fumehood.policy.model import Policy
from fumehood.policy.network import Protocol
from fumehood.policy.quantities import MAX_SECONDS
from fumehood.policy.section import Leaf, leaves
from fumehood.policy.words import rule_details, words

_SECTION = "network.allow"
_USUAL_PORTS: dict[Protocol, int] = {"tls": 443, "http": 80}


def decide_connection(book: Rulebook, host: str, port: int) -> Decision[str]:
    decision = book.decide_connection(host, port)
    route = book.find_route(host, port)
    if not decision.allowed or route is None:
        return _denied(decision)
    return Decision(str(decision.attempt), True, _opened(route), decision.rule)


def decide_request(book: Rulebook, request: HttpAttempt) -> Decision[str]:
    attempt = f"http {request.method} {_url(request)}"
    connection = book.decide_connection(request.host, request.port)
    route = book.find_route(request.host, request.port)
    if not connection.allowed or route is None:
        return replace(_denied(connection, attempt), fix=_narrowed(connection.fix, request))
    spoken = _spoken(request)
    if route.protocol not in (spoken, "tcp"):
        remedy = f"set protocol: {spoken} in {route.key}"
        return Decision(attempt, False, f"the rule lets only {route.protocol} pass there", route.key, remedy)
    if route.protocol == "tcp" or (request.secure and not route.reads_requests):
        return Decision(attempt, True, f"{_opened(route)}; requests there are not read", route.key)
    host = endpoint(request.host, request.port)
    decision = book.decide_request(route, request.method, request.target, host)
    if not decision.allowed:
        return _denied(decision, attempt)
    return Decision(attempt, True, _opened(route), decision.rule)


def _denied(decision: Decision[Attempt], attempt: str = "") -> Decision[str]:
    return Decision(attempt or str(decision.attempt), False, decision.reason, decision.rule or _SECTION, decision.fix)


def _narrowed(remedy: str, request: HttpAttempt) -> str:
    """A rule for a host that has none is to open no more than the request."""
    rule, is_new, _ = remedy.partition("} to network.allow")
    path = request.target.partition("?")[0]
    if not is_new or not is_plain_path(path):
        return remedy
    spoken = _spoken(request)
    protocol = "" if _USUAL_PORTS[spoken] == request.port else f", protocol: {spoken}"
    return f"{rule}{protocol}, methods: [{request.method}], paths: [{json.dumps(path)}]}} to network.allow"


def _spoken(request: HttpAttempt) -> Protocol:
    return "tls" if request.secure else "http"


def _opened(route: Route) -> str:
    details = [text for text in (rule_details(rule.rule) for rule in route.rules) if text]
    narrowed = f" ({'; '.join(details)})" if details else ""
    # Only the gateway learns where a name leads.
    public = "" if route.private or is_address(route.host) else ", at public addresses"
    return f"the rule opens {endpoint(route.host, route.port)}{narrowed}{public}"


def _url(request: HttpAttempt) -> str:
    host = f"[{request.host}]" if ":" in request.host else request.host
    place = host if request.port == _USUAL_PORTS[_spoken(request)] else endpoint(request.host, request.port)
    return f"http{'s' if request.secure else ''}://{place}{request.target}"


class Judge:
    """Decides attempts by one policy; quick for any number of them."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._rulebook = Rulebook(policy)

    def decide(self, kind: AttemptKind, target: str) -> Decision[str]:
        """`target` as in a checked `Expectation`."""
        match kind:
            case "connect":
                return decide_connection(self._rulebook, *split_endpoint(target))
            case "http":
                return decide_request(self._rulebook, parse_request(target))
            case "read":
                return files.decide_read(self._policy, target)
            case "write":
                return files.decide_write(self._policy, target)
            case "command":
                return _decide_command(self._policy, target)
            case "resource":
                return _decide_amount(self._policy, parse_amount(target))
            case _:
                assert_never(kind)


def parse_attempt(text: str) -> Expectation:
    """An attempt in a question, checked like one in the tests of a policy."""
    kind, _, target = text.strip().partition(" ")
    if kind not in ATTEMPTS or not target.strip():
        raise UsageError(f'{text!r} is not an attempt; write one such as "connect api.github.com:443", {_FORMS}')
    try:
        policy = Policy(tests=[{kind: target.strip(), "expect": "allow"}])
    except PolicyError as error:
        raise UsageError("; ".join(problem.removeprefix(f"tests[0].{kind}: ") for problem in error.problems)) from None
    return policy.tests[0]


_FORMS = (
    '"http GET https://api.github.com/x", "read /data/x", "write out/x", "command git push" or "resource memory=1G"'
)


@dataclass(frozen=True, slots=True)
class TestResult:
    """One test: what was expected, and what the policy decides."""

    __test__ = False

    index: int
    expectation: Expectation
    decision: Decision[str]

    @property
    def passed(self) -> bool:
        return self.decision.verdict == self.expectation.expect


def run_tests(policy: Policy) -> Iterator[TestResult]:
    decisions = Judge(policy)
    for index, expectation in enumerate(policy.tests):
        yield TestResult(index, expectation, decisions.decide(expectation.kind, expectation.target))


def _decide_command(policy: Policy, line: str) -> Decision[str]:
    """Decides on a line for bash. The first of several refusals is returned; the fix has to cover all of them."""
    attempt = f"command {line}"
    if policy.commands.is_open:
        return Decision(attempt, True, "commands has no rules, so anything may run inside", "commands")
    decision = judge(policy.commands, line)
    if decision.allowed:
        return Decision(attempt, True, "the rules allow every command in it", _command_list(policy))
    first = decision.denied[0]
    part = "" if first.attempt.text == line else f"{shortened(first.attempt.text)!r}: "
    fix = ", and ".join(dict.fromkeys(denied.fix for denied in decision.denied))
    return Decision(attempt, False, f"{part}{first.reason}", first.rule or _command_list(policy), fix)


def _command_list(policy: Policy) -> str:
    return "commands.deny" if policy.commands.allow is None else "commands.allow"


def _decide_amount(policy: Policy, amount: Amount) -> Decision[str]:
    """Up to the limit, the limit included."""
    leaf = next(leaf for leaf in leaves(policy.resources) if leaf.key == amount.name)
    attempt = f"resource {amount.name}={words(amount.number, leaf)}"
    key = f"resources.{amount.name}"
    if isinstance(leaf.value, int | float):
        why = f"the limit is {words(leaf.value, leaf)}"
        if amount.number > leaf.value:
            return Decision(attempt, False, why, key, f"set {key}: {words(amount.number, leaf)}")
        if amount.name != "cpu_time":
            return Decision(attempt, True, why, key)
    return _decide_by_clock(policy, amount, attempt, leaf)


def _decide_by_clock(policy: Policy, amount: Amount, attempt: str, leaf: Leaf) -> Decision[str]:
    """CPU time has another bound, and without a limit of its own only that: how long a run lasts on how many CPUs."""
    resources, key = policy.resources, "resources.timeout"
    most = resources.timeout * resources.cpus
    why = f"timeout and cpus leave {words(most, leaf)} of it"
    if amount.number <= most:
        return Decision(attempt, True, why, key)
    needed = amount.number / resources.cpus
    return Decision(attempt, False, why, key, f"set {key}: {words(needed, leaf)}" if needed <= MAX_SECONDS else "")
