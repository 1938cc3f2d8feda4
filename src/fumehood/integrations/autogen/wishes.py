"""What the options of an executor add up to, before a policy is looked at. Contradictions are refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from fumehood.integrations.autogen.refusals import OptionError

DEFAULT_CPU_PERIOD = 100_000
"""Docker's, in microseconds."""


@dataclass(frozen=True)
class Limit:
    """`option` is who asked for it."""

    value: float
    option: str


@dataclass(frozen=True)
class Volume:
    source: str
    target: str
    mode: Literal["ro", "rw"]
    option: str


@dataclass
class Wishes:
    """Limits by their key in `resources`."""

    limits: dict[str, Limit] = field(default_factory=dict[str, Limit])
    volumes: list[Volume] = field(default_factory=list[Volume])
    environment: dict[str, str] = field(default_factory=dict[str, str])
    network: Limit | None = None
    """1 for an open one, 0 for none."""
    memory_and_swap: Limit | None = None
    cpu_period: Limit | None = None
    cpu_quota: Limit | None = None

    def limit(self, key: str, value: float, option: str) -> None:
        self.limits[key] = _agreed(self.limits.get(key), Limit(value, option))

    def open_network(self, is_open: bool, option: str) -> None:
        self.network = _agreed(self.network, Limit(is_open, option))

    def conclude(self) -> None:
        """What only several options together say."""
        self._conclude_cpus()
        memory = self.limits.get("memory")
        if self.memory_and_swap and (memory is None or memory.value != self.memory_and_swap.value):
            reason = "memory is limited together with swap, so this must be the same as mem_limit"
            raise OptionError(self.memory_and_swap.option, reason)

    def _conclude_cpus(self) -> None:
        period, quota = self.cpu_period, self.cpu_quota
        if quota:
            self.limit("cpus", quota.value / (period.value if period else DEFAULT_CPU_PERIOD), quota.option)
        elif period:
            raise OptionError(period.option, "says nothing without cpu_quota; give both, or cpus")


def _agreed(before: Limit | None, now: Limit) -> Limit:
    if before is not None and before.value != now.value:
        raise OptionError(now.option, f"contradicts {before.option}; give one of them")
    return now
