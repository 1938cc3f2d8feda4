"""The rules of a policy, asked one question at a time: a name, a connection, an address, a handshake, a request.

No rule that covers an attempt is a denial. Where several do:

1. The rules whose `host` means it most exactly decide, the others are silent: a name or address before `*.name`, a
   longer `*.name` before a shorter one, `*` last, a small block of addresses before a large one.
2. Among rules with that same host, the strictest of each matter holds: TLS before HTTP before TCP, private addresses
   only if all say so, every limit counts. If one lists methods or paths, a request needs a rule that lists and covers
   it; one that lists nothing opens nothing beside it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from ipaddress import ip_address

from fumehood.policy.decision import Decision, allow, deny
from fumehood.policy.egress.addresses import Address, Reach, classify, plain
from fumehood.policy.egress.attempt import Attempt, shown
from fumehood.policy.egress.headers import METHODS_WITH_BODY, overriding_parameters
from fumehood.policy.egress.route import NumberedRule, Route
from fumehood.policy.egress.targets import AmbiguousPathError, is_plain_path, readings, split_target
from fumehood.policy.hosts import check_host, covers, is_address, is_localhost, specificity
from fumehood.policy.model import Policy
from fumehood.policy.network import is_method
from fumehood.policy.section import refuse_control_characters

# What may stand in front of a wildcard's own name. A longer name carries data to the domain's name server.
MOST_WILDCARD_CHARACTERS = 64
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,20}", re.ASCII)
_LOOPBACK = ip_address("127.0.0.1")
_LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
_HOST_HEADER = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^:\[\]]+)(?::(?P<port>[0-9]{1,5}))?", re.ASCII)


def normalise(text: str) -> str:
    """A name or address as a program wrote it, in its one spelling, or ValueError saying why it has none."""
    refuse_control_characters(text)
    return check_host(text)


class Rulebook:
    """Pure: the same question has the same answer, and nothing is asked of the network."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._rules = [NumberedRule(rule, index) for index, rule in enumerate(policy.network.allow)]

    @property
    def ports(self) -> tuple[int, ...]:
        """Every port that some rule opens."""
        return tuple(sorted({port for rule in self.policy.network.allow for port in rule.ports}))

    def lists(self, host: str) -> bool:
        """Whether a rule spells this host out, rather than covering it with a wildcard."""
        return any(rule.rule.host == host for rule in self._rules)

    def decide_name(self, name: str) -> Decision[Attempt]:
        """May this name be looked up? It may if it is open on any port."""
        attempt = Attempt("dns", name)
        try:
            host = normalise(name)
        except ValueError as error:
            return deny(attempt, f"the name {error}")
        attempt = replace(attempt, host=host)
        if is_address(host):
            return deny(attempt, "is an address, which needs no look-up")
        covering = self._most_exact([rule for rule in self._rules if covers(rule.rule.host, host)])
        if not covering:
            return deny(attempt, "no rule opens this name", fix=_opens(host, 443))
        return self._check_length(attempt, covering[0])

    def decide_connection(self, host: str, port: int) -> Decision[Attempt]:
        """May a connection be made, as far as name and port can tell? `find_route` gives what holds on it."""
        attempt = Attempt("connect", host, port)
        try:
            host = normalise(host)
        except ValueError as error:
            return deny(attempt, f"the name {error}")
        attempt = replace(attempt, host=host)
        route = self.find_route(host, port)
        if route is None:
            return self._not_open(attempt)
        decision = self._check_length(attempt, route.rules[0])
        return self._check_literal(decision, route) if decision.allowed else decision

    def find_route(self, host: str, port: int) -> Route | None:
        """What the rules say together of a host, in its one spelling, and a port."""
        covering = [rule for rule in self._rules if port in rule.rule.ports and covers(rule.rule.host, host)]
        rules = self._most_exact(covering)
        if not rules:
            return None
        route = Route(host, port, rules)
        if route.protocol != "tls":
            # A credential is never sent where everybody on the way could read it.
            return route
        return replace(route, secrets=tuple(secret for secret in self.policy.secrets if secret.inject.host == host))

    def decide_address(self, route: Route, address: Address) -> Decision[Attempt]:
        """May the gateway connect to the address that it found for a route?"""
        reach, kind = classify(address)
        attempt = Attempt("connect", route.host, route.port)
        match reach:
            case Reach.PUBLIC:
                return allow(attempt, route.key)
            case Reach.PRIVATE if route.private:
                return allow(attempt, route.key)
            case Reach.METADATA if route.private and route.names_its_address:
                return allow(attempt, route.key)
            case Reach.PRIVATE:
                fix = f"set private: true in {route.key}"
            case Reach.METADATA:
                fix = _opens(str(plain(address)), route.port)
            case Reach.NEVER:
                fix = ""
        place = "" if str(address) == route.host else f"{route.host} leads to "
        return deny(attempt, f"{place}{address}, which is {kind}", route.key, fix)

    def decide_own_address(self, route: Route, address: Address) -> Decision[Attempt]:
        """May the gateway connect to an address that turned out to be this machine's own, whatever its kind?"""
        attempt = Attempt("connect", route.host, route.port)
        if route.private:
            return allow(attempt, route.key)
        fix = f"set private: true in {route.key}"
        return deny(attempt, f"{route.host} leads to {address}, which is this machine", route.key, fix)

    def decide_hello(
        self, route: Route, server_name: str | None, *, encrypted: bool = False, protocols: Sequence[str] = ()
    ) -> Decision[Attempt]:
        """May this TLS handshake go on? `encrypted` says that it hides its real name, `protocols` is its ALPN offer."""
        attempt = Attempt("tls", route.host, route.port)
        if encrypted and not route.reads_requests:
            # Where TLS ends at the gateway the hidden name is not decrypted, and browsers always send a fake one.
            fix = f'add paths: ["/**"] to {route.key}, so that its requests are read'
            return deny(attempt, "the handshake hides its server name (ECH)", route.key, fix)
        if server_name is None:
            if is_address(route.host):
                return self._check_protocols(attempt, route, protocols)
            return deny(attempt, "the handshake names no server (SNI)", route.key, _raw(route))
        try:
            if server_name.endswith("."):
                raise ValueError("ends in a dot")
            name = normalise(server_name)
        except ValueError as error:
            return deny(attempt, f"the server name of the handshake {error}", route.key)
        if name != route.host:
            fix = "" if is_address(name) else _opens(name, route.port)
            return deny(attempt, f"the handshake names another server, {name}", route.key, fix)
        return self._check_protocols(attempt, route, protocols)

    def decide_request(
        self,
        route: Route,
        method: str,
        target: str,
        host: str,
        headers: Collection[str] = (),
        *,
        has_body: bool = False,
        websocket: bool = False,
    ) -> Decision[Attempt]:
        """May this request be sent? `target` and `host` are as in its first line and its Host header.

        `headers` are the names of all its headers; `websocket` says that it asks to go on as a WebSocket.
        """
        attempt = Attempt("http", route.host, route.port, method, target.partition("?")[0])
        attempt = replace(attempt, secure=route.protocol == "tls", websocket=websocket)
        if _TOKEN.fullmatch(method) is None or method in ("CONNECT", "PRI"):
            return deny(attempt, "the method makes no sense here", route.key)
        if not _same_host(host, route):
            return deny(attempt, f"the Host header names another server than {route.host}", route.key)
        if method == "TRACE" and route.secrets:
            return deny(attempt, "TRACE would send the credential back", route.key)
        tricks = overriding_parameters(target.partition("?")[2]) if route.narrowing else []
        if tricks:
            why = f"{shown(tricks[0])} in its query could ask the server for another method than {method}"
            return deny(attempt, why, route.key, f"leave methods and paths out of {route.key}")
        if route.narrowing and has_body and method not in METHODS_WITH_BODY:
            why = f"it has a body, which servers may take for another request, because {method} has none by itself"
            return deny(attempt, why, route.key, f"leave methods and paths out of {route.key}, or send it by POST")
        try:
            path = "*" if target == "*" and method == "OPTIONS" else split_target(target)
            found = readings(path) if any(rule.rule.paths for rule in route.narrowing) else {path}
        except AmbiguousPathError as error:
            return deny(attempt, str(error), route.key)
        return self._check_narrowing(attempt, route, found, route.unknown_headers(headers))

    def _check_narrowing(self, attempt: Attempt, route: Route, found: set[str], headers: set[str]) -> Decision[Attempt]:
        rules = route.narrowing
        fitting = [rule for rule in rules if all(rule.covers_path(path) for path in found)]
        allowing = [rule for rule in fitting if rule.covers_method(attempt.method)]
        if not rules:
            return _check_websocket(attempt, route, route.rules)
        if allowing:
            return _check_headers(attempt, route, allowing, headers)
        if fitting:
            why = f"the rule allows only {', '.join(fitting[0].methods)} here"
            return deny(attempt, why, fitting[0].key, _add_method(attempt.method, fitting[0]))
        rule = next((rule for rule in rules if rule.covers_method(attempt.method)), rules[0])
        return deny(attempt, "no rule allows this path", rule.key, _add_path(attempt, rule))

    def _check_protocols(self, attempt: Attempt, route: Route, protocols: Sequence[str]) -> Decision[Attempt]:
        if route.reads_requests and protocols and "http/1.1" not in protocols:
            why = "its rule is about requests, which are read as HTTP/1.1 only, and the client does not offer that"
            return deny(attempt, why, route.key, f"leave methods and paths out of {route.key}")
        return allow(attempt, route.key)

    def _check_literal(self, decision: Decision[Attempt], route: Route) -> Decision[Attempt]:
        if is_localhost(route.host):
            return self.decide_address(route, _LOOPBACK)
        if not is_address(route.host):
            return decision
        return self.decide_address(route, ip_address(route.host))

    def _check_length(self, attempt: Attempt, rule: NumberedRule) -> Decision[Attempt]:
        pattern = rule.rule.host
        if pattern.startswith("*") and len(attempt.host) - len(pattern[1:]) > MOST_WILDCARD_CHARACTERS:
            why = f"more than {MOST_WILDCARD_CHARACTERS} characters stand for the wildcard, which could carry data out"
            return deny(attempt, why, rule.key, _opens(attempt.host, attempt.port or 443))
        return allow(attempt, rule.key)

    def _most_exact(self, covering: list[NumberedRule]) -> tuple[NumberedRule, ...]:
        best = max((specificity(rule.rule.host) for rule in covering), default=0)
        return tuple(rule for rule in covering if specificity(rule.rule.host) == best)

    def _not_open(self, attempt: Attempt) -> Decision[Attempt]:
        covering = self._most_exact([rule for rule in self._rules if covers(rule.rule.host, attempt.host)])
        if not covering:
            kind = "address" if is_address(attempt.host) else "name"
            return deny(attempt, f"no rule opens this {kind}", fix=_opens(attempt.host, attempt.port))
        rule = covering[0]
        why = f"the rule opens only {', '.join(map(str, rule.rule.ports))} there"
        return deny(attempt, why, rule.key, f"add {attempt.port} to ports of {rule.key}")


def _opens(host: str, port: int) -> str:
    extra = ""
    if is_address(host):
        reach, _ = classify(ip_address(host))
        if reach is Reach.NEVER:
            return ""
        extra = "" if reach is Reach.PUBLIC else ", private: true"
        host = f'"{host}"' if ":" in host else host
    elif is_localhost(host):
        extra = ", private: true"
    return f"add {{host: {host}, ports: [{port}]{extra}}} to network.allow"


def _raw(route: Route) -> str:
    return "" if route.reads_requests else f"set protocol: tcp in {route.key}"


def _add_path(attempt: Attempt, rule: NumberedRule) -> str:
    """Nothing where the pattern would mean more than this path: a program must not suggest what it is given."""
    if not is_plain_path(attempt.path):
        return ""
    fix = f"add {attempt.path} to paths of {rule.key}"
    if rule.covers_method(attempt.method):
        return fix
    return f"{fix}, and {attempt.method} to its methods" if is_method(attempt.method) else ""


def _add_method(method: str, rule: NumberedRule) -> str:
    if not is_method(method):
        return ""
    if rule.rule.methods is None:
        return f"list methods in {rule.key}, {method} among them"
    return f"add {method} to methods of {rule.key}"


def _check_headers(
    attempt: Attempt, route: Route, rules: Sequence[NumberedRule], headers: Collection[str]
) -> Decision[Attempt]:
    """One of the rules has to cover all headers that are not known to be harmless."""
    fitting = [rule for rule in rules if all(map(rule.covers_header, headers))]
    if fitting:
        return _check_websocket(attempt, route, fitting)
    key = rules[0].key
    name = min(name for name in headers if not rules[0].covers_header(name))
    why = f"the header {shown(name)} is not known to leave the request as it is"
    fix = f"add {name} to headers of {key}, if the server makes no other request of it"
    return deny(attempt, why, key, fix if name == shown(name) else "")


def _check_websocket(attempt: Attempt, route: Route, rules: Sequence[NumberedRule]) -> Decision[Attempt]:
    """Decides on a WebSocket: one rule is enough among rules that list requests; otherwise all have to allow it."""
    fitting = [rule for rule in rules if rule.rule.websocket or not attempt.websocket]
    if route.protocol == "tcp":
        return allow(attempt, route.key)
    if len(fitting) == len(rules) or (fitting and route.narrowing):
        return allow(attempt, fitting[0].key)
    key = next(rule.key for rule in rules if rule not in fitting)
    return deny(attempt, "the rule opens no WebSocket", key, f"set websocket: true in {key}")


def _same_host(header: str, route: Route) -> bool:
    match = _HOST_HEADER.fullmatch(header)
    if match is None or (match["port"] is not None and int(match["port"]) != route.port):
        return False
    try:
        host = normalise(match["host"].removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    # A connection to 127.0.0.1 does not tell by which of its names the program knows this machine.
    return host == route.host or {host, route.host} <= _LOOPBACK_HOSTS
