"""How much of each rule a sandbox has used: bytes, connections at a time, new connections a second.

Used in the gateway's thread alone. A rule keeps its count when the policy changes around it.
"""

from __future__ import annotations

from dataclasses import replace

from fumehood.egress.buckets import Bucket
from fumehood.egress.refusal import RefusedError
from fumehood.policy import NetworkRule, format_size
from fumehood.policy.egress import Attempt, Decision, NumberedRule, Opening


class _Count:
    def __init__(self, rule: NetworkRule) -> None:
        self.bytes = 0
        self.connections = 0
        rate = rule.max_rate
        self.rate = None if rate is None else Bucket(max(1.0, rate), rate)


class Quotas:
    def __init__(self) -> None:
        self._counts: dict[NetworkRule, _Count] = {}

    def enter(self, opening: Opening) -> Lease:
        """Count a new connection, or refuse it. Every rule of an opening has a say."""
        counts = [(rule, self._counts.setdefault(rule.rule, _Count(rule.rule))) for rule in opening.rules]
        lease = Lease(opening, counts)
        lease.check()
        return lease


class Lease:
    """One connection's share. Bytes are those that are exchanged with the outside, in both directions."""

    def __init__(self, opening: Opening, counts: list[tuple[NumberedRule, _Count]]) -> None:
        self._opening, self._counts = opening, counts
        self._entered = False

    def check(self) -> None:
        for rule, count in self._counts:
            most = rule.rule.max_connections
            if most is not None and count.connections >= most:
                self._refuse(rule, f"the rule allows {most} connections at a time", "max_connections")
            if rule.rule.max_bytes is not None and count.bytes >= rule.rule.max_bytes:
                self._refuse_bytes(rule)
        for rule, count in self._counts:
            if count.rate is not None and not count.rate.take():
                self._refuse(rule, f"the rule allows {rule.rule.max_rate} new connections a second", "max_rate")
        for _, count in self._counts:
            count.connections += 1
        self._entered = True

    def allowance(self, wanted: int) -> int:
        """How many bytes may move now: at least one, since it is the first one too many that ends the connection."""
        left = [rule.rule.max_bytes - count.bytes for rule, count in self._counts if rule.rule.max_bytes is not None]
        return max(1, min([wanted, *left]))

    def count(self, moved: int) -> None:
        for rule, count in self._counts:
            count.bytes += moved
            if rule.rule.max_bytes is not None and count.bytes > rule.rule.max_bytes:
                self._refuse_bytes(rule)

    def leave(self) -> None:
        if self._entered:
            self._entered = False
            for _, count in self._counts:
                count.connections -= 1

    def _refuse_bytes(self, rule: NumberedRule) -> None:
        self._refuse(rule, f"the rule allows {format_size(rule.rule.max_bytes or 0)} in all", "max_bytes")

    def _refuse(self, rule: NumberedRule, why: str, key: str) -> None:
        attempt = Attempt("connect", self._opening.host, self._opening.port)
        raise RefusedError(replace(Decision(attempt, rule.key, why), remedy=f"raise {key} of {rule.key}"))
