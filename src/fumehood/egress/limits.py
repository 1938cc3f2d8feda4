"""Limits of the gateway: what a sandbox may use whatever its policy says, the quotas of its rules, and memory.

Quotas count bytes, connections at a time and new connections a second. They are kept by host and port, not by rule, so
that a change of policy does not reset them. All of it is used in the gateway's thread alone.

Memory is what waits for slow readers. A connection holds what it has read until that is delivered, and reads nothing
more before, unless it needs more to understand what it has: the rest of a head, of a TLS record. When a budget is used
up, connections read tiny pieces: all of them go on, none can be stopped by others, and the sum stays near the budget.
Only a head or a handshake that is both long and unfinished is given up then: it cannot be delivered in part.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from fumehood.egress.log import EgressDeniedError
from fumehood.policy import NetworkRule, format_size
from fumehood.policy.decision import deny
from fumehood.policy.egress import Attempt, NumberedRule, Route
from fumehood.tenant import EgressMeter


@dataclass(frozen=True, slots=True)
class GatewayLimits:
    """What one sandbox may use of the gateway at most. The defaults are documented in docs/network.md."""

    connections: int = 1024
    """Most connections of one sandbox at a time; one more is reset. Lower where the process has few descriptors."""
    memory_bytes: int = 32 * 1024 * 1024
    """Read and not yet delivered, by all connections of one sandbox; beyond it each has at most a tiny piece."""
    gateway_memory_bytes: int = 64 * 1024 * 1024
    """The same of all sandboxes together."""
    hello_seconds: float = 10.0
    """Timeout of a TLS handshake or the head of a request, from its start to its last byte."""
    connect_seconds: float = 10.0
    """Timeout of resolving and connecting to a server, all its addresses together."""
    idle_seconds: float = 900.0
    """Timeout of a connection without data in either direction."""
    look_ups: int = 8
    """Most look-ups of one sandbox at a time; further ones wait."""
    new_names: int = 100
    """Names below a wildcard that may be new at once ..."""
    new_names_a_second: float = 2.0
    """... and how fast that fills up again: a name that was not used before may carry data in itself."""
    names: int = 4096
    """Most names that a sandbox may use in its lifetime."""
    denials: int = 200
    allowed: int = 4096
    """Most denials and most allowed attempts that a run lists one by one; the rest are only counted."""


class TokenBucket:
    """A token bucket, full at first: `size` at once, and `per_second` more. Not thread-safe."""

    def __init__(self, size: float, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._size, self._per_second, self._clock = size, per_second, clock
        self._level, self._seen = size, clock()

    def take(self) -> bool:
        """One out of it, if there is one."""
        now = self._clock()
        self._level = min(self._size, self._level + (now - self._seen) * self._per_second)
        self._seen = now
        if self._level < 1:
            return False
        self._level -= 1
        return True

    def change(self, size: float, per_second: float) -> None:
        """Other figures from now on; what has been taken stays taken."""
        self._size, self._per_second = size, per_second


@dataclass(slots=True)
class _Use:
    """Bytes and connections used so far at one port of one host, as rules spell it."""

    bytes: int = 0
    connections: int = 0


class Quotas:
    """Of the rules of one sandbox; `meter` is the quota of its tenant, for all its sandboxes together."""

    def __init__(self, meter: EgressMeter | None = None) -> None:
        self._meter = meter
        self._uses: defaultdict[tuple[str, int], _Use] = defaultdict(_Use)
        self._rates: dict[tuple[str, tuple[int, ...]], TokenBucket] = {}

    def enter(self, route: Route) -> QuotaLease:
        """Count a new connection, or refuse it. Every rule of a route has a say."""
        limits = [_Limit(rule, [self._uses[rule.rule.host, port] for port in rule.rule.ports]) for rule in route.rules]
        hosts = dict.fromkeys(rule.rule.host for rule in route.rules)
        lease = QuotaLease(route, limits, [self._uses[host, route.port] for host in hosts], self._meter)
        lease.check()
        for rule in route.rules:
            if (rate := rule.rule.max_rate) is not None and not self._bucket(rule.rule, rate).take():
                raise _refusal(route, rule, f"the rule allows {rate} new connections a second", "max_rate")
        lease.enter()
        return lease

    def _bucket(self, rule: NetworkRule, rate: float) -> TokenBucket:
        size = max(1.0, rate)
        bucket = self._rates.setdefault((rule.host, rule.ports), TokenBucket(size, rate))
        bucket.change(size, rate)
        return bucket


@dataclass(frozen=True, slots=True)
class _Limit:
    """One rule, and the uses that count towards it."""

    rule: NumberedRule
    uses: list[_Use]

    @property
    def bytes_left(self) -> int | None:
        most = self.rule.rule.max_bytes
        return None if most is None else most - sum(use.bytes for use in self.uses)

    @property
    def connections(self) -> int:
        return sum(use.connections for use in self.uses)


class QuotaLease:
    """One connection's share. Bytes are those that are exchanged with the outside, in both directions."""

    def __init__(self, route: Route, limits: list[_Limit], own: list[_Use], meter: EgressMeter | None = None) -> None:
        self._opening, self._limits, self._own, self._meter = route, limits, own, meter
        self._entered = False

    def check(self) -> None:
        for limit in self._limits:
            most, left = limit.rule.rule.max_connections, limit.bytes_left
            if most is not None and limit.connections >= most:
                why = f"the rule allows {most} connections at a time"
                raise _refusal(self._opening, limit.rule, why, "max_connections")
            if left is not None and left <= 0:
                raise self._too_many_bytes(limit.rule)
        if self._meter is not None and self._meter.left_bytes() <= 0:
            raise self._tenant_has_no_more(self._meter)

    def enter(self) -> None:
        self._entered = True
        for use in self._own:
            use.connections += 1

    def allowance(self, wanted: int) -> int:
        """How many bytes may move now: at least one, since it is the first one too many that ends the connection."""
        left = [limit.bytes_left for limit in self._limits]
        if self._meter is not None:
            left.append(self._meter.left_bytes())
        return max(1, min([wanted, *(each for each in left if each is not None)]))

    def count(self, moved: int) -> None:
        for use in self._own:
            use.bytes += moved
        for limit in self._limits:
            if (left := limit.bytes_left) is not None and left < 0:
                raise self._too_many_bytes(limit.rule)
        if self._meter is not None:
            self._meter.count(moved)
            if self._meter.left_bytes() < 0:
                raise self._tenant_has_no_more(self._meter)

    def leave(self) -> None:
        if self._entered:
            self._entered = False
            for use in self._own:
                use.connections -= 1

    def _too_many_bytes(self, rule: NumberedRule) -> EgressDeniedError:
        why = f"the rule allows {format_size(rule.rule.max_bytes or 0)} in all"
        return _refusal(self._opening, rule, why, "max_bytes")

    def _tenant_has_no_more(self, meter: EgressMeter) -> EgressDeniedError:
        attempt = Attempt("connect", self._opening.host, self._opening.port)
        return EgressDeniedError(deny(attempt, meter.refusal()))


def _refusal(route: Route, rule: NumberedRule, why: str, key: str) -> EgressDeniedError:
    attempt = Attempt("connect", route.host, route.port)
    return EgressDeniedError(deny(attempt, why, rule.key, f"raise {key} of {rule.key}"))


_SMALL_BYTES = 32 * 1024
TINY_BYTES = 4 * 1024
# As long as the heads that common servers accept: what may be kept unfinished although a budget is used up.
MOST_KEPT_BYTES = 8 * 1024
# When others have used up the gateway's budget, a sandbox still has this part of its own.
_OWN_PART = 8


class MemoryUsedUpError(ConnectionAbortedError):
    """A connection needs more memory to go on than there is."""

    def __init__(self) -> None:
        super().__init__(
            "the connections of the sandbox hold all the memory that they may, and this one has a long, unfinished head"
        )


class GatewayMemory:
    """The bytes that the connections of all sandboxes hold."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes, self.held_bytes = most_bytes, 0


class SandboxMemory:
    """The bytes that the connections of one sandbox hold."""

    def __init__(self, most_bytes: int, gateway: GatewayMemory) -> None:
        self.most_bytes, self.held_bytes = most_bytes, 0
        self._gateway = gateway

    def hold(self, change: int) -> None:
        """Changes the number of bytes held, up or down."""
        self.held_bytes += change
        self._gateway.held_bytes += change

    def check_kept(self, kept: int) -> None:
        """Raises MemoryUsedUpError if a connection may not read more besides so many bytes that it cannot deliver."""
        if kept > MOST_KEPT_BYTES and self._is_used_up:
            raise MemoryUsedUpError

    @property
    def _is_used_up(self) -> bool:
        if self._gateway.held_bytes >= self._gateway.most_bytes:
            return self.held_bytes >= self.most_bytes // _OWN_PART
        return self.held_bytes >= self.most_bytes

    def piece(self, wanted: int) -> int:
        """How many bytes a connection may read now."""
        used = max(self.held_bytes / self.most_bytes, self._gateway.held_bytes / self._gateway.most_bytes)
        if used < 0.5:
            return min(wanted, self.most_bytes // 4)
        return min(wanted, _SMALL_BYTES if used < 1 else TINY_BYTES)
