"""Connections and requests: the words around what the rulebook decides."""

from __future__ import annotations

from fumehood.policy.egress import Decision, Opening, Rulebook
from fumehood.policy.hosts import endpoint, is_address
from fumehood.policy.rulings.ruling import Ruling
from fumehood.policy.urls import Request
from fumehood.policy.words import rule_details

_SECTION = "network.allow"


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
        return _denied(connection, attempt)
    spoken = "tls" if request.secure else "http"
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


def _opened(opening: Opening) -> str:
    details = [text for text in (rule_details(rule.rule) for rule in opening.rules) if text]
    narrowed = f" ({'; '.join(details)})" if details else ""
    # Only the gateway learns where a name leads.
    public = "" if opening.private or is_address(opening.host) else ", at public addresses"
    return f"the rule opens {endpoint(opening.host, opening.port)}{narrowed}{public}"


def _url(request: Request) -> str:
    usual = 443 if request.secure else 80
    host = f"[{request.host}]" if ":" in request.host else request.host
    place = host if request.port == usual else endpoint(request.host, request.port)
    return f"http{'s' if request.secure else ''}://{place}{request.target}"
