"""The way out of one sandbox: its rules, the names it uses, its credentials, its certificate authority."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from fumehood.egress import learn_mode, proxy
from fumehood.egress.connection import Connection
from fumehood.egress.connections import SandboxConnections
from fumehood.egress.credentials import Credentials
from fumehood.egress.dial import Dialer
from fumehood.egress.learn_mode import LearnMode
from fumehood.egress.limits import SandboxMemory
from fumehood.egress.log import EgressLog
from fumehood.egress.rules import RunRules, SandboxRules
from fumehood.egress.run_egress import DNS_PORT, RunEgress, serve_names
from fumehood.egress.tunnel import Tunnel
from fumehood.errors import StepFailedError, UsageError
from fumehood.policy import Policy
from fumehood.policy.egress import Route, Rulebook
from fumehood.tenant import Tenant

if TYPE_CHECKING:
    from fumehood.egress.certificates import CertificateAuthority
    from fumehood.egress.gateway import Gateway

_HERE = "127.0.0.1"
_PROXY = f"http://127.0.0.1:{proxy.PORT}"
_AT_HOME = "localhost,127.0.0.1,::1"
# Each of these moves the trusted roots of some client: OpenSSL, requests, curl, git, pip, Node, cargo, and so on.
_TRUST_VARIABLES = (
    *("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "PIP_CERT", "NODE_EXTRA_CA_CERTS"),
    *("CARGO_HTTP_CAINFO", "AWS_CA_BUNDLE", "NIX_SSL_CERT_FILE"),
)


class SandboxEgress:
    """Thread-safe where a method says nothing else; the attributes belong to the gateway's thread."""

    def __init__(
        self, gateway: Gateway, policy: Policy, sandbox_id: str, tenant: Tenant, *, learns: bool = False
    ) -> None:
        self.learns = learns
        """Everything is noted, and nothing goes out, whatever the policy says."""
        self._likely_ports = {*learn_mode.PORTS, *Rulebook(policy).ports} if learns else None
        policy = learn_mode.everything() if learns else policy
        self.sandbox_id, self._gateway, self._limits = sandbox_id, gateway, gateway.limits
        self.memory = SandboxMemory(self._limits.memory_bytes, gateway.memory)
        self.rules = SandboxRules(policy, self._limits, tenant.secrets)
        self._secrets = tenant.secrets
        self.authority: CertificateAuthority | None = None
        if learns:
            self.authority = _authority()
            dialer, carrier = None, LearnMode(self.authority)
        else:
            self.authority = _authority() if _reads_requests(policy) else None
            dialer = Dialer(self.rules, gateway.resolve, self._limits, tenant.egress)
            carrier = Tunnel(self.authority, gateway.upstream_context)
        services = {(_HERE, DNS_PORT): serve_names, (_HERE, proxy.PORT): proxy.Proxy(carrier).serve}
        self.connections = SandboxConnections(
            gateway.connections,
            self._limits,
            self.memory,
            gateway.buffer,
            dialer,
            services,
            carrier.serve,
            tenant=tenant.name,
        )
        self.runs: set[RunEgress] = set()

    def __repr__(self) -> str:
        return f"SandboxEgress({self.sandbox_id!r})"

    @property
    def ports(self) -> tuple[int, ...]:
        """The TCP ports to listen on inside, at every address: those of the rules, DNS, and the proxy."""
        return tuple(sorted({*(self._likely_ports or self.rules.book.ports), DNS_PORT, proxy.PORT}))

    @property
    def trust(self) -> bytes:
        """The roots that programs inside are to trust, as PEM: the host's, and this sandbox's own if it is used."""
        own = b"" if self.authority is None else self.authority.pem
        return self._gateway.host_roots() + own

    def environment(self, trust_path: str) -> dict[str, str]:
        """Variables for programs inside, where `trust` is found at that path."""
        found = dict.fromkeys(_TRUST_VARIABLES, trust_path)
        for name, value in (("http_proxy", _PROXY), ("https_proxy", _PROXY), ("no_proxy", _AT_HOME)):
            found[name] = found[name.upper()] = value
        return found

    def open_run(self, run_id: str) -> RunEgress:
        """A run's use of the way out."""
        log = EgressLog(denials=self._limits.denials, allowed=self._limits.allowed)
        run = RunEgress(
            run_id,
            thread=self._gateway,
            rules=RunRules(self.rules, log),
            log=log,
            connections=self.connections,
            ports=lambda: self.ports,
            learns=self.learns,
            on_close=self.runs.discard,
        )
        self._gateway.call(self.runs.add, run)
        return run

    def change(self, policy: Policy) -> None:
        """Other rules from now on. Connections that the new ones do not allow as they are end before this returns."""
        if self.learns:
            return
        credentials = Credentials(policy, self._secrets)
        if self.authority is None and _reads_requests(policy):
            raise UsageError(
                "the new rules list methods, paths or secrets and the old ones did not, so programs inside do not "
                "trust the gateway's certificates; open a new sandbox for them"
            )
        self._gateway.wait(self._change, Rulebook(policy), credentials)

    def close(self) -> None:
        """End all connections and listeners of all runs."""
        for run in list(self.runs):
            run.end()
        with contextlib.suppress(StepFailedError):
            self._gateway.call(self._gateway.forget, self)

    async def _change(self, book: Rulebook, credentials: Credentials) -> None:
        self.rules.change(book, credentials)
        ended = [connection for connection in self.connections.open if self._outdated(connection)]
        for connection in ended:
            connection.abort()
        for connection in ended:
            await connection.wait()

    def _outdated(self, connection: Connection) -> bool:
        old = connection.route
        return old is not None and not _same(old, self.rules.book.find_route(old.host, old.port))

    def cut(self) -> None:
        """In the gateway's thread: end everything at once, and wait for nothing."""
        for run in self.runs:
            run.cut()


def _same(old: Route, new: Route | None) -> bool:
    if new is None:
        return False
    return [rule.rule for rule in old.rules] == [rule.rule for rule in new.rules] and old.secrets == new.secrets


def _reads_requests(policy: Policy) -> bool:
    return bool(policy.secrets) or any(rule.narrows_requests for rule in policy.network.allow)


def _authority() -> CertificateAuthority:
    from fumehood.egress.certificates import CertificateAuthority

    return CertificateAuthority()
