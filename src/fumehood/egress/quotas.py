"""How much of each rule a sandbox has used: bytes, connections at a time, new connections a second.

Used in the gateway's thread alone. What was used is counted by host and port, not by rule: whatever else of a rule
changes, it goes on from there.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from fumehood.egress.buckets import Bucket
from fumehood.egress.refusal import RefusedError
from fumehood.policy import NetworkRule, format_size
from fumehood.policy.decision import deny
from fumehood.policy.egress import Attempt, NumberedRule, Route


@dataclass(slots=True)
class _Use:
    """Of one port of one host, as rules spell it."""

    bytes: int = 0
    connections: int = 0


class Quotas:
    def __init__(self) -> None:
        self._uses: defaultdict[tuple[str, int], _Use] = defaultdict(_Use)
        self._rates: dict[tuple[str, tuple[int, ...]], Bucket] = {}

    def enter(self, route: Route) -> Lease:
        """Count a new connection, or refuse it. Every rule of a route has a say."""
        limits = [_Limit(rule, [self._uses[rule.rule.host, port] for port in rule.rule.ports]) for rule in route.rules]
        hosts = dict.fromkeys(rule.rule.host for rule in route.rules)
        lease = Lease(route, limits, [self._uses[host, route.port] for host in hosts])
        lease.check()
        for rule in route.rules:
            if (rate := rule.rule.max_rate) is not None and not self._bucket(rule.rule, rate).take():
                raise _refusal(route, rule, f"the rule allows {rate} new connections a second", "max_rate")
        lease.enter()
        return lease

    def _bucket(self, rule: NetworkRule, rate: float) -> Bucket:
        size = max(1.0, rate)
        bucket = self._rates.setdefault((rule.host, rule.ports), Bucket(size, rate))
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


class Lease:
    """One connection's share. Bytes are those that are exchanged with the outside, in both directions."""

    def __init__(self, route: Route, limits: list[_Limit], own: list[_Use]) -> None:
        self._opening, self._limits, self._own = route, limits, own
        self._entered = False

    def check(self) -> None:
        for limit in self._limits:
            most, left = limit.rule.rule.max_connections, limit.bytes_left
            if most is not None and limit.connections >= most:
                why = f"the rule allows {most} connections at a time"
                raise _refusal(self._opening, limit.rule, why, "max_connections")
            if left is not None and left <= 0:
                raise self._too_many_bytes(limit.rule)

    def enter(self) -> None:
        self._entered = True
        for use in self._own:
            use.connections += 1

    def allowance(self, wanted: int) -> int:
        """How many bytes may move now: at least one, since it is the first one too many that ends the connection."""
        left = [limit.bytes_left for limit in self._limits]
        return max(1, min([wanted, *(each for each in left if each is not None)]))

    def count(self, moved: int) -> None:
        for use in self._own:
            use.bytes += moved
        for limit in self._limits:
            if (left := limit.bytes_left) is not None and left < 0:
                raise self._too_many_bytes(limit.rule)

    def leave(self) -> None:
        if self._entered:
            self._entered = False
            for use in self._own:
                use.connections -= 1

    def _too_many_bytes(self, rule: NumberedRule) -> RefusedError:
        why = f"the rule allows {format_size(rule.rule.max_bytes or 0)} in all"
        return _refusal(self._opening, rule, why, "max_bytes")


def _refusal(route: Route, rule: NumberedRule, why: str, key: str) -> RefusedError:
    attempt = Attempt("connect", route.host, route.port)
    return RefusedError(deny(attempt, why, rule.key, f"raise {key} of {rule.key}"))
