"""Decisions about connections and requests: the rulebook's, in words."""

from __future__ import annotations

import json
from dataclasses import replace

from fumehood.policy.attempts import HttpAttempt
from fumehood.policy.decision import Decision
from fumehood.policy.egress import Attempt, Route, Rulebook, is_plain_path
from fumehood.policy.hosts import endpoint, is_address
from fumehood.policy.network import Protocol
from fumehood.policy.words import rule_details

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
