"""Runs that may go out: who stands behind their doors, and what happened there.

Where a backend can tell runs apart, each has a visit to the gateway of its own. Where it cannot, runs that are under
way at the same time share one, and each of them is told of what was refused while it ran.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

import anyio
import anyio.to_thread

from fumehood.audit.events import AuditEvent, CanarySeen, EgressAllowed, EgressDenied
from fumehood.backends.interface import Doorway, Visit
from fumehood.guest.contract.paths import TRUST_FILE
from fumehood.results import Cause, Denial, RunResult

if TYPE_CHECKING:
    from fumehood.policy.egress import AllowedAttempt
    from fumehood.secret_scan.canaries import Alarm

# What programs write at last when they find no network: C libraries, curl, wget, Node, Go, Java, Rust.
LAST_WORDS_BYTES = 4096
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
Counted = TypeVar("Counted", Denial, "AllowedAttempt")


class GatewayVisit(Visit, Protocol):
    """As the gateway has it."""

    def denials(self) -> tuple[Denial, ...]:
        """What was refused so far; the same things are counted."""
        ...

    def passages(self) -> tuple[AllowedAttempt, ...]:
        """What was let through so far, counted likewise."""
        ...

    def alarms(self) -> tuple[Alarm, ...]:
        """Canaries that were found so far, and refused."""
        ...

    def end(self) -> object:
        """Everything that goes out by it is closed."""
        ...


class Account(NamedTuple):
    """What has become of everything that was tried."""

    denials: tuple[Denial, ...] = ()
    passages: tuple[AllowedAttempt, ...] = ()
    alarms: tuple[Alarm, ...] = ()

    @classmethod
    def of(cls, visit: GatewayVisit) -> Account:
        return cls(visit.denials(), visit.passages(), visit.alarms())

    def since(self, before: Account) -> Account:
        return Account(
            tuple(_since(before.denials, self.denials)),
            tuple(_since(before.passages, self.passages)),
            tuple(alarm for alarm in self.alarms if alarm not in before.alarms),
        )

    def events(self) -> Iterator[AuditEvent]:
        for each in self.passages:
            yield EgressAllowed(each.kind, each.what, each.rule or None, each.count)
        for each in self.denials:
            yield EgressDenied(each.kind, each.what, each.why, each.rule or None, each.count)
        for alarm in self.alarms:
            yield CanarySeen(alarm.canary, alarm.where)


class GatewayPass(Protocol):
    """A sandbox's way out, as the gateway grants it."""

    @property
    def ports(self) -> tuple[int, ...]: ...

    @property
    def trust(self) -> bytes: ...

    def environment(self, trust_path: str) -> Mapping[str, str]: ...

    def visit(self, run_id: str) -> GatewayVisit: ...


class Outing:
    """One run's, or one session's. Without a doorway it stays at home."""

    def __init__(self, doorway: Doorway | None = None, visit: GatewayVisit | None = None) -> None:
        self.doorway = doorway
        self._visit = visit
        self._final: Account | None = None if visit else Account()
        self._told = self._account()

    def news(self) -> tuple[Denial, ...]:
        """What was refused since the last time, also when it is over already."""
        before, self._told = self._told, self._account()
        return self._told.since(before).denials

    def follow(self) -> Callable[[], Iterable[AuditEvent]]:
        """From now on; what is returned tells, when it is called, all that has happened by then."""
        before = self._account()
        return lambda: self._account().since(before).events()

    def settle(self) -> None:
        """It is over: what happens to others from here on is none of its business."""
        self._final = self._account()

    def _account(self) -> Account:
        if self._final is not None or self._visit is None:
            return self._final or Account()
        return Account.of(self._visit)


class Outings:
    """Of one sandbox."""

    def __init__(self, granted: GatewayPass, *, is_shared: bool) -> None:
        self._pass = granted
        self._is_shared = is_shared
        self._shared: GatewayVisit | None = None
        self._travellers = 0

    @asynccontextmanager
    async def outing(self, name: str) -> AsyncIterator[Outing]:
        """For as long as the run lives. What it still has open is closed at the end."""
        visit = self._enter(name)
        environment = self._pass.environment(TRUST_FILE)
        outing = Outing(Doorway(self._pass.ports, environment, self._pass.trust, visit), visit)
        try:
            yield outing
        finally:
            outing.settle()
            await self._leave(visit)

    def _enter(self, name: str) -> GatewayVisit:
        visit = self._shared or self._pass.visit(name)
        self._travellers += 1
        if self._is_shared:
            self._shared = visit
        return visit

    async def _leave(self, visit: GatewayVisit) -> None:
        self._travellers -= 1
        if self._shared is None or self._travellers == 0:
            self._shared = None
            await wait_for_gateway(visit.end)


async def wait_for_gateway(work: Callable[[], T]) -> T:
    """It has a thread of its own, and whoever waits for that must not keep an event loop waiting."""
    results: list[T] = []
    with anyio.CancelScope(shield=True):
        results.append(await anyio.to_thread.run_sync(work))
    return results[0]


def network_hint(result: RunResult, stderr: bytes, *, is_open: bool) -> RunResult:
    """With what to do, if the run failed for want of a network, or at its own loopback, as far as its stderr tells.

    What the gateway refused is in the result's denials already.
    """
    if result.cause is not Cause.EXIT or result.ok or result.detail or result.denials:
        return result
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
