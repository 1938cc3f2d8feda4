"""The way out of one sandbox: its rules, the names it uses, its credentials, its certificate authority."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fumehood.egress import learn_mode, proxy
from fumehood.egress.connection import Connection
from fumehood.egress.credentials import Credentials
from fumehood.egress.dns import DnsServer, NameTable
from fumehood.egress.limits import Quotas
from fumehood.egress.memory import SandboxMemory
from fumehood.egress.run_egress import DNS_PORT, RunEgress
from fumehood.errors import StepFailedError, UsageError
from fumehood.policy import Policy
from fumehood.policy.egress import Address, Route, Rulebook
from fumehood.secret_scan.canaries import load_canaries

if TYPE_CHECKING:
    from fumehood.egress.certificates import CertificateAuthority
    from fumehood.egress.gateway import Gateway

_PROXY = f"http://127.0.0.1:{proxy.PORT}"
_AT_HOME = "localhost,127.0.0.1,::1"
# Each of these moves the trusted roots of some client: OpenSSL, requests, curl, git, pip, Node, cargo, and so on.
_TRUST_VARIABLES = (
    *("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "PIP_CERT", "NODE_EXTRA_CA_CERTS"),
    *("CARGO_HTTP_CAINFO", "AWS_CA_BUNDLE", "NIX_SSL_CERT_FILE"),
)


class SandboxEgress:
    """Thread-safe where a method says nothing else; the attributes belong to the gateway's thread."""

    def __init__(self, gateway: Gateway, policy: Policy, sandbox_id: str, *, learns: bool = False) -> None:
        self.learns = learns
        """Everything is noted, and nothing goes out, whatever the policy says."""
        self._likely_ports = {*learn_mode.PORTS, *Rulebook(policy).ports} if learns else None
        policy = learn_mode.everything() if learns else policy
        self.gateway, self.sandbox_id, self.limits = gateway, sandbox_id, gateway.limits
        self.upstream_context, self.buffer = gateway.upstream_context, gateway.buffer
        self.memory = SandboxMemory(self.limits.memory_bytes, gateway.memory)
        self.book = Rulebook(policy)
        self.credentials = Credentials(policy)
        self.canaries = load_canaries(policy, os.environ)
        self.authority = _authority(policy, learns)
        self.names, self.quotas = NameTable(self.limits), Quotas()
        self.stub = DnsServer(lambda: self.book, self.names)
        self._looking_up = asyncio.Semaphore(self.limits.look_ups)
        self.runs: set[RunEgress] = set()
        self.connections = 0
        # No sandbox may take what all have to share.
        self.most_connections = min(self.limits.connections, gateway.most_connections // 2)

    def __repr__(self) -> str:
        return f"SandboxEgress({self.sandbox_id!r})"

    @property
    def ports(self) -> tuple[int, ...]:
        """The TCP ports to listen on inside, at every address: those of the rules, DNS, and the proxy."""
        return tuple(sorted({*(self._likely_ports or self.book.ports), DNS_PORT, proxy.PORT}))

    @property
    def trust(self) -> bytes:
        """The roots that programs inside are to trust, as PEM: the host's, and this sandbox's own if it is used."""
        own = b"" if self.authority is None else self.authority.pem
        return self.gateway.host_roots() + own

    def environment(self, trust_path: str) -> dict[str, str]:
        """Variables for programs inside, where `trust` is found at that path."""
        found = dict.fromkeys(_TRUST_VARIABLES, trust_path)
        for name, value in (("http_proxy", _PROXY), ("https_proxy", _PROXY), ("no_proxy", _AT_HOME)):
            found[name] = found[name.upper()] = value
        return found

    def open_run(self, run_id: str) -> RunEgress:
        """A run's use of the way out."""
        run = RunEgress(self, run_id)
        self.gateway.call(self.runs.add, run)
        return run

    def change(self, policy: Policy) -> None:
        """Other rules from now on. Connections that the new ones do not allow as they are end before this returns."""
        if self.learns:
            return
        credentials = Credentials(policy)
        if self.authority is None and _reads_requests(policy):
            raise UsageError(
                "the new rules list methods, paths or secrets and the old ones did not, so programs inside do not "
                "trust the gateway's certificates; open a new sandbox for them"
            )
        self.gateway.wait(self._change, Rulebook(policy), credentials)

    def close(self) -> None:
        """End all connections and listeners of all runs."""
        for run in list(self.runs):
            run.end()
        with contextlib.suppress(StepFailedError):
            self.gateway.call(self.gateway.sandboxes.discard, self)

    async def look_up(self, name: str) -> Sequence[Address]:
        """In the gateway's thread: the addresses of a name.

        A look-up whose caller has gone still counts until it is over, because it still occupies a thread that
        other sandboxes need too.
        """
        await self._looking_up.acquire()
        answer = asyncio.ensure_future(self.gateway.resolve(name))
        answer.add_done_callback(lambda _: self._looking_up.release())
        return await asyncio.shield(answer)

    async def _change(self, book: Rulebook, credentials: Credentials) -> None:
        self.book, self.credentials = book, credentials
        ended = [connection for run in self.runs for connection in run.connections if self._outdated(connection)]
        for connection in ended:
            connection.abort()
        for connection in ended:
            await connection.wait()

    def _outdated(self, connection: Connection) -> bool:
        old = connection.route
        return old is not None and not _same(old, self.book.find_route(old.host, old.port))

    def cut(self) -> None:
        """In the gateway's thread: end everything at once, and wait for nothing."""
        for run in self.runs:
            run.cut()

    def give_up_one(self) -> bool:
        """In the gateway's thread: end the connection that has not moved for longest, for another sandbox's sake."""
        left = [connection for run in self.runs for connection in run.connections if not connection.is_ending]
        if left:
            connection = max(left, key=lambda each: each.idle_seconds)
            connection.give_up("other sandboxes need connections too, and this one has the most (ulimit -n)")
        return bool(left)

    def end_idle(self) -> None:
        """In the gateway's thread: end what has not moved for too long."""
        for run in self.runs:
            for connection in run.connections:
                if connection.idle_seconds > self.limits.idle_seconds:
                    connection.abort()


def _same(old: Route, new: Route | None) -> bool:
    if new is None:
        return False
    return [rule.rule for rule in old.rules] == [rule.rule for rule in new.rules] and old.secrets == new.secrets


def _reads_requests(policy: Policy) -> bool:
    return bool(policy.secrets) or any(rule.narrows_requests for rule in policy.network.allow)


def _authority(policy: Policy, learns: bool) -> CertificateAuthority | None:
    if not learns and not _reads_requests(policy):
        return None
    from fumehood.egress.certificates import CertificateAuthority

    return CertificateAuthority()
