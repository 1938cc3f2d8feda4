"""What the sandboxes of a tenant use, counted where runs begin and end and where bytes leave, whoever asked for them.

A meter is this process's: several servers have one each for a tenant, and what each has counted is added up in the
database every two seconds while there is something to add, and when a sandbox opens. So servers together can go beyond
a limit by what they begin and use in that time, and one that dies has lost the count of that time. One server alone
goes beyond none.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Mapping

from fumehood.errors import FumehoodError
from fumehood.results import RunResult
from fumehood.server.storage.database import Database, Transaction
from fumehood.server.tenants.quotas import (
    DEFAULTS,
    Limit,
    Limits,
    Quota,
    QuotaExceededError,
    count_running,
    note_running,
    read_limits,
)
from fumehood.server.tenants.usage import CPU, DAY_SECONDS, EGRESS, MEMORY, RUNS, add_usage, start_of_day, used_today
from fumehood.server.tracing import OFF, Tracing


class UsageCounts:
    """What was used and is not in the database yet, and what the database had of this day. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending = Counter[str]()
        self._before: dict[str, float] = {}

    @property
    def is_empty(self) -> bool:
        return not self._pending

    def add(self, **amounts: float) -> None:
        with self._lock:
            self._pending.update(amounts)  # pyright: ignore[reportArgumentType]  # a Counter adds floats as well

    def today(self, name: str) -> float:
        with self._lock:
            return self._before.get(name, 0.0) + self._pending[name]

    def take(self) -> dict[str, float]:
        """All that is pending, which counts as used meanwhile."""
        with self._lock:
            taken, self._pending = dict(self._pending), Counter[str]()
            for name, amount in taken.items():
                self._before[name] = self._before.get(name, 0.0) + amount
        return {name: amount for name, amount in taken.items() if amount}

    def give_back(self, taken: dict[str, float]) -> None:
        """It did not get to the database."""
        with self._lock:
            for name, amount in taken.items():
                self._before[name] -= amount
        self.add(**taken)

    def know(self, before: dict[str, float]) -> None:
        with self._lock:
            self._before = before


class DatabaseAwayError(FumehoodError):
    """What a run uses could not be counted, nor would a key that was revoked be noticed."""

    def __init__(self) -> None:
        super().__init__("the server cannot reach its database, and starts nothing meanwhile; try again")


class TenantMeter:
    """Made by `Meters`, which have read its limits before any run begins."""

    def __init__(self, tenant: str, tracing: Tracing = OFF) -> None:
        self._tenant, self._tracing = tenant, tracing
        self.limits: Limits = {quota: Limit(value, "default") for quota, value in DEFAULTS.items()}
        self.counts = UsageCounts()
        self.egress = TenantEgress(self)
        self._settling = asyncio.Lock()
        self._next: asyncio.Task[None] | None = None
        """What those who ask now wait for; it has not begun yet."""
        self._running, self._noted = 0, 0
        self._elsewhere = 0.0
        """Runs under way at other servers."""
        self.is_held = False
        """Whether no run may begin."""

    @property
    def running(self) -> int:
        return self._running

    @property
    def is_busy(self) -> bool:
        """Whether the database does not have all of it, or others may have more by now."""
        return self._running > 0 or self._noted > 0 or not self.counts.is_empty

    def begin(self) -> None:
        if self.is_held:
            raise DatabaseAwayError
        running = self._running + self._elsewhere
        if running >= self.limits[Quota.RUNS].value:
            raise QuotaExceededError(Quota.RUNS, self.limits[Quota.RUNS], running)
        used = self.counts.today(CPU)
        if used >= self.limits[Quota.CPU].value:
            raise QuotaExceededError(Quota.CPU, self.limits[Quota.CPU], round(used, 1), next_day())
        self._running += 1

    def end(self, run_id: str, result: RunResult | None, seconds: float) -> None:
        """A run that was left before its end is charged with all its time, so that leaving early saves nothing."""
        self._running -= 1
        self._tracing.run_ended(self._tenant, run_id, result, seconds)
        memory = 0.0 if result is None else result.peak_memory_bytes * seconds
        self.counts.add(**{RUNS: 1, CPU: seconds if result is None else result.cpu_ms / 1000, MEMORY: memory})

    def limits_for_worker(self) -> dict[str, float]:
        """What another host, which counts for itself, may use from now on."""
        return {
            "runs": self.limits[Quota.RUNS].value,
            "cpu_seconds_left": self.limits[Quota.CPU].value - self.counts.today(CPU),
            "egress_bytes_left": float(self.egress.left_bytes()),
        }

    async def settle(self, database: Database, instance: str) -> None:
        """Adds what is pending to the database, and reads what others have added and the limits that hold now.

        All who ask before it begins share it.
        """
        if self._next is None:
            self._next = asyncio.ensure_future(self._settle(database, instance))
        await asyncio.shield(self._next)

    async def _settle(self, database: Database, instance: str) -> None:
        tenant = self._tenant
        async with self._settling:
            self._next = None
            now, taken, running = time.time(), self.counts.take(), self._running

            async def exchange(transaction: Transaction) -> tuple[dict[str, float], float, Limits]:
                await add_usage(transaction, tenant, now, **taken)
                if running != self._noted:
                    await note_running(transaction, tenant, instance, running)
                before = {name: await used_today(transaction, tenant, name, now) for name in (CPU, EGRESS)}
                elsewhere = await count_running(transaction, tenant, but=instance)
                return before, elsewhere, await read_limits(transaction, tenant)

            try:
                before, self._elsewhere, self.limits = await database.transact(tenant, exchange)
            except BaseException:
                self.counts.give_back(taken)
                raise
            self.counts.know(before)
            self._noted, self.is_held = running, False


class TenantEgress:
    """The quota of bytes a day, for the gateway."""

    def __init__(self, meter: TenantMeter) -> None:
        self._meter = meter

    def left_bytes(self) -> int:
        return int(self._meter.limits[Quota.EGRESS].value - self._meter.counts.today(EGRESS))

    def count(self, moved: int) -> None:
        self._meter.counts.add(**{EGRESS: moved})

    def refusal(self) -> str:
        limit, used = self._meter.limits[Quota.EGRESS], self._meter.counts.today(EGRESS)
        return str(QuotaExceededError(Quota.EGRESS, limit, used, next_day()))


class Meters:
    """One for each tenant that has had a sandbox in this process."""

    def __init__(self, database: Database, instance: str, tracing: Tracing = OFF) -> None:
        self._database, self._instance, self._tracing = database, instance, tracing
        self._meters: dict[str, TenantMeter] = {}

    async def of(self, tenant: str) -> TenantMeter:
        """Up to date."""
        meter = self._meters.get(tenant) or self._meters.setdefault(tenant, TenantMeter(tenant, self._tracing))
        await meter.settle(self._database, self._instance)
        return meter

    def limits_for_worker(self, tenant: str) -> dict[str, float]:
        """Of a tenant whose meter is up to date."""
        return self._meters[tenant].limits_for_worker()

    def knows(self, tenant: str) -> bool:
        """Whether it has had a sandbox by this process."""
        return tenant in self._meters

    def add(self, tenant: str, amounts: Mapping[str, float]) -> None:
        """What was used on a worker."""
        self._meters[tenant].counts.add(**amounts)

    def hold(self) -> None:
        """The database is away: no run begins before the next `settle_all`."""
        for meter in self._meters.values():
            meter.is_held = True

    async def settle_all(self) -> None:
        for meter in list(self._meters.values()):
            await meter.settle(self._database, self._instance)

    async def settle_busy(self) -> None:
        for meter in list(self._meters.values()):
            if meter.is_busy:
                await meter.settle(self._database, self._instance)


def next_day() -> float:
    return start_of_day(time.time()) + DAY_SECONDS
