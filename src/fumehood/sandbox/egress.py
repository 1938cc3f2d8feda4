"""The network of a sandbox's runs: which run uses which `RunEgress` of the gateway, and what happened there.

Where a backend can tell runs apart, each has one of its own. Where it cannot, runs that are under way at the same time
share one, and the result of each holds what was refused while it ran.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import anyio
import anyio.to_thread

from fumehood.audit.events import AuditEvent, CanarySeen, EgressAllowed, EgressDenied
from fumehood.backends.interface import EgressEndpoint
from fumehood.guest.contract.paths import TRUST_FILE
from fumehood.results import Cause, Denial, RunResult
from fumehood.sandbox.output import LAST_WORDS_BYTES

if TYPE_CHECKING:
    from fumehood.egress import RunEgress, SandboxEgress
    from fumehood.egress.log import EgressFailure
    from fumehood.policy.egress import AllowedAttempt
    from fumehood.secret_scan.canaries import CanaryAlert

# The last output of programs that find no network: C libraries, curl, wget, Node, Go, Java, Rust.
_NO_NETWORK = re.compile(
    rb"Temporary failure in name resolution|Name or service not known|No address associated with hostname"
    rb"|[Cc]ould not resolve host|unable to resolve host|failed to lookup address|could not translate host name"
    rb"|getaddrinfo E[A-Z_]+|EAI_AGAIN|ENETUNREACH|EHOSTUNREACH|Network is unreachable|No route to host"
    rb"|dial tcp: lookup |UnknownHostException|Name resolution failed"
)
_CLOSED = "the network is closed; add a rule such as {host: example.com, ports: [443]} to network.allow"
_REFUSED = re.compile(rb"[Cc]onnection refused|ECONNREFUSED")
_OWN_LOOPBACK = (
    "nothing listens there: a sandbox has a loopback of its own; for a server at this machine's 127.0.0.1, add a rule "
    "such as {host: 127.0.0.1, ports: [8000], private: true} to network.allow"
)
T = TypeVar("T")
Counted = TypeVar("Counted", Denial, "AllowedAttempt", "EgressFailure")


class EgressRecords(NamedTuple):
    """What a run has tried so far, and how it was decided."""

    denials: tuple[Denial, ...] = ()
    allowed: tuple[AllowedAttempt, ...] = ()
    alerts: tuple[CanaryAlert, ...] = ()
    failures: tuple[EgressFailure, ...] = ()

    @classmethod
    def of(cls, run: RunEgress) -> EgressRecords:
        return cls(run.denials(), run.allowed(), run.alerts(), run.failures())

    def since(self, before: EgressRecords) -> EgressRecords:
        if not any(self):
            return self
        return EgressRecords(
            tuple(_since(before.denials, self.denials)),
            tuple(_since(before.allowed, self.allowed)),
            tuple(alert for alert in self.alerts if alert not in before.alerts),
            tuple(_since(before.failures, self.failures)),
        )

    def events(self) -> Iterator[AuditEvent]:
        for each in self.allowed:
            yield EgressAllowed(each.kind, each.what, each.rule or None, each.count)
        for each in self.denials:
            yield EgressDenied(each.kind, each.what, each.why, each.rule or None, each.count)
        for alert in self.alerts:
            yield CanarySeen(alert.canary, alert.where)


class RunNetwork:
    """The network of one run, or of one session; closed without an endpoint."""

    def __init__(self, endpoint: EgressEndpoint | None = None, egress: RunEgress | None = None) -> None:
        self.endpoint = endpoint
        self._egress = egress
        self._final: EgressRecords | None = None if egress else EgressRecords()
        self._reported = self._records()

    def news(self) -> EgressRecords:
        """What happened since the last call, also after the end."""
        before, self._reported = self._reported, self._records()
        return self._reported.since(before)

    def follow(self) -> Callable[[], Iterable[AuditEvent]]:
        """A function that returns, when it is called, all events since now."""
        before = self._records()
        return lambda: self._records().since(before).events()

    def freeze(self) -> None:
        """The run is over: what happens from here on belongs to other runs."""
        self._final = self._records()

    def _records(self) -> EgressRecords:
        if self._final is not None or self._egress is None:
            return self._final or EgressRecords()
        return EgressRecords.of(self._egress)


class SandboxNetwork:
    """Opens a `RunNetwork` for each run of one sandbox; `is_shared` if the backend cannot tell its runs apart."""

    def __init__(self, egress: SandboxEgress, *, is_shared: bool) -> None:
        self._egress = egress
        self._is_shared = is_shared
        self._shared: RunEgress | None = None
        self._runs = 0

    @asynccontextmanager
    async def open_run(self, name: str) -> AsyncIterator[RunNetwork]:
        """The network of a run, for as long as it lives; connections that are still open are closed at the end."""
        egress = self._enter(name)
        environment = self._egress.environment(TRUST_FILE)
        network = RunNetwork(EgressEndpoint(self._egress.ports, environment, self._egress.trust, egress), egress)
        try:
            yield network
        finally:
            network.freeze()
            await self._leave(egress)

    def _enter(self, name: str) -> RunEgress:
        egress = self._shared or self._egress.open_run(name)
        self._runs += 1
        if self._is_shared:
            self._shared = egress
        return egress

    async def _leave(self, egress: RunEgress) -> None:
        self._runs -= 1
        if self._shared is None or self._runs == 0:
            self._shared = None
            await wait_for_gateway(egress.end)


async def wait_for_gateway(work: Callable[[], T]) -> T:
    """Wait in a worker thread for the gateway's thread, so that the event loop goes on."""
    results: list[T] = []
    with anyio.CancelScope(shield=True):
        results.append(await anyio.to_thread.run_sync(work))
    return results[0]


def network_hint(
    result: RunResult, stderr: bytes, *, is_open: bool, failures: Sequence[EgressFailure] = ()
) -> RunResult:
    """The result with a hint if the run failed for want of a network, or at its own loopback, judging by its stderr.

    What the gateway refused is in the result's denials already; `failures` are what it could not do.
    """
    if result.cause is not Cause.EXIT or result.ok or result.detail or result.denials:
        return result
    if failures:
        return replace(result, detail="the policy allows it, but " + "; ".join(each.reason for each in failures))
    last_words = stderr[-LAST_WORDS_BYTES:]
    if not is_open and _NO_NETWORK.search(last_words):
        return replace(result, detail=_CLOSED)
    return replace(result, detail=_OWN_LOOPBACK) if _REFUSED.search(last_words) else result


def _since(before: Iterable[Counted], now: Iterable[Counted]) -> Iterator[Counted]:
    counted = {replace(each, count=0): each.count for each in before}
    for each in now:
        new = each.count - counted.get(replace(each, count=0), 0)
        if new > 0:
            yield replace(each, count=new)
