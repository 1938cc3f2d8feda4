"""The rules of a sandbox as they are now, and what they say to the attempts of one run."""

from __future__ import annotations

from fumehood.egress.credentials import Credentials
from fumehood.egress.dns import DnsServer, NameTable
from fumehood.egress.limits import GatewayLimits
from fumehood.egress.log import MUST_NOT_LEAVE, EgressDeniedError, EgressLog
from fumehood.policy import Policy
from fumehood.policy.decision import deny
from fumehood.policy.egress import Attempt, Route, Rulebook
from fumehood.policy.hosts import endpoint
from fumehood.policy.secret import SecretSource
from fumehood.secret_scan.canaries import CanaryWatch, load_canaries

_LOOPBACK = "127.0.0.1"


class SandboxRules:
    """Rulebook, credentials, names and canaries of a sandbox. The first two are replaced when its policy changes."""

    def __init__(self, policy: Policy, limits: GatewayLimits, secrets: SecretSource) -> None:
        self.book, self.credentials = Rulebook(policy), Credentials(policy, secrets)
        self.canaries = load_canaries(policy, secrets)
        self.names = NameTable(limits)
        self.dns = DnsServer(lambda: self.book, self.names)

    def change(self, book: Rulebook, credentials: Credentials) -> None:
        self.book, self.credentials = book, credentials


class RunRules:
    """Decides the attempts of one run by the rules of its sandbox, and records what it finds in the log of the run."""

    def __init__(self, sandbox: SandboxRules, log: EgressLog) -> None:
        self._sandbox, self._names, self._canaries, self._log = sandbox, sandbox.names, sandbox.canaries, log

    @property
    def book(self) -> Rulebook:
        """The present one: not to be kept, since a change of policy replaces it."""
        return self._sandbox.book

    @property
    def credentials(self) -> Credentials:
        return self._sandbox.credentials

    @property
    def has_canaries(self) -> bool:
        return bool(self._canaries)

    def answer(self, query: bytes) -> bytes | None:
        """The reply to one DNS message; thread-safe."""
        return self._sandbox.dns.answer(query, self._log.record, self._holds_canary)

    def host_at(self, address: str) -> str:
        """What a program means by an address: the name that it stands for, or the address itself."""
        return self._names.host_at(address)

    def judge_address(self, address: str, port: int) -> Route:
        """The route of a program that connected to an address, which stands for a name or for itself."""
        host = self.host_at(address)
        if host == _LOOPBACK and not self.book.lists(host):
            # Programs find this one in the hosts file and never ask for it.
            host = "localhost"
        return self.judge(host, port, looked_up=True)

    def judge(self, host: str, port: int, *, looked_up: bool) -> Route:
        """The route to a host and port; raises what the rules have against it.

        A name that did not come through the name server (`looked_up`) is counted here as it would have been there.
        """
        book = self.book
        decision = book.decide_connection(host, port)
        route = book.find_route(decision.attempt.host, port)
        if not decision.allowed or route is None:
            raise EgressDeniedError(decision)
        if not looked_up:
            _, why = self._names.admit(route.host, listed=book.lists(route.host))
            if why:
                raise EgressDeniedError(deny(decision.attempt, why, decision.rule))
            if self._holds_canary(route.host):
                raise EgressDeniedError(deny(Attempt("connect", "a name", port), MUST_NOT_LEAVE, decision.rule))
        return route

    def watch(self, route: Route) -> CanaryWatch:
        """Looks for canaries in what is about to leave for a server."""
        return CanaryWatch(self._canaries, endpoint(route.host, route.port))

    def check_outflow(self, watch: CanaryWatch, data: bytes, route: Route) -> None:
        """Raises if a canary is in it."""
        if alerts := watch.feed(data):
            for alert in alerts:
                self._log.alert(alert)
            raise EgressDeniedError(deny(Attempt("connect", route.host, route.port), MUST_NOT_LEAVE, route.key))

    def _holds_canary(self, name: str) -> bool:
        """Whether a name carries a canary: names leave too."""
        alerts = CanaryWatch(self._canaries, "a name").feed(name.encode())
        for alert in alerts:
            self._log.alert(alert)
        return bool(alerts)
