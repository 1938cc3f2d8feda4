"""Connections and requests: the words around what the rulebook decides."""

from __future__ import annotations

import json
from dataclasses import replace

from fumehood.policy.egress import Decision, Opening, Rulebook, is_plain_path
from fumehood.policy.hosts import endpoint, is_address
from fumehood.policy.network import Protocol
from fumehood.policy.rulings.ruling import Ruling
from fumehood.policy.urls import Request
from fumehood.policy.words import rule_details

_SECTION = "network.allow"
_USUAL_PORTS: dict[Protocol, int] = {"tls": 443, "http": 80}


def decide_connection(book: Rulebook, host: str, port: int) -> Ruling:
    decision = book.decide_connection(host, port)
    opening = book.opening(host, port)
    if not decision.allowed or opening is None:
        return _denied(decision)
    return Ruling(str(decision.attempt), True, _opened(opening), decision.rule)


def decide_request(book: Rulebook, request: Request) -> Ruling:
    attempt = f"http {request.method} {_url(request)}"
    connection = book.decide_connection(request.host, request.port)
    opening = book.opening(request.host, request.port)
    if not connection.allowed or opening is None:
        return replace(_denied(connection, attempt), remedy=_narrowed(connection.remedy, request))
    spoken = _spoken(request)
    if opening.protocol not in (spoken, "tcp"):
        remedy = f"set protocol: {spoken} in {opening.key}"
        return Ruling(attempt, False, f"the rule lets only {opening.protocol} pass there", opening.key, remedy)
    if opening.protocol == "tcp" or (request.secure and not opening.reads_requests):
        return Ruling(attempt, True, f"{_opened(opening)}; requests there are not read", opening.key)
    host = endpoint(request.host, request.port)
    decision = book.decide_request(opening, request.method, request.target, host)
    if not decision.allowed:
        return _denied(decision, attempt)
    return Ruling(attempt, True, _opened(opening), decision.rule)


def _denied(decision: Decision, attempt: str = "") -> Ruling:
    return Ruling(attempt or str(decision.attempt), False, decision.why, decision.rule or _SECTION, decision.remedy)


def _narrowed(remedy: str, request: Request) -> str:
    """A rule for a host that has none is to open no more than the request."""
    rule, is_new, _ = remedy.partition("} to network.allow")
    path = request.target.partition("?")[0]
    if not is_new or not is_plain_path(path):
        return remedy
    spoken = _spoken(request)
    protocol = "" if _USUAL_PORTS[spoken] == request.port else f", protocol: {spoken}"
    return f"{rule}{protocol}, methods: [{request.method}], paths: [{json.dumps(path)}]}} to network.allow"


def _spoken(request: Request) -> Protocol:
    return "tls" if request.secure else "http"


def _opened(opening: Opening) -> str:
    details = [text for text in (rule_details(rule.rule) for rule in opening.rules) if text]
    narrowed = f" ({'; '.join(details)})" if details else ""
    # Only the gateway learns where a name leads.
    public = "" if opening.private or is_address(opening.host) else ", at public addresses"
    return f"the rule opens {endpoint(opening.host, opening.port)}{narrowed}{public}"


def _url(request: Request) -> str:
    host = f"[{request.host}]" if ":" in request.host else request.host
    place = host if request.port == _USUAL_PORTS[_spoken(request)] else endpoint(request.host, request.port)
    return f"http{'s' if request.secure else ''}://{place}{request.target}"
