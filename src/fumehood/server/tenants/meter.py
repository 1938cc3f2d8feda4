"""What the runs of a tenant use, counted where they begin and end, whoever asked for them.

A meter is this process's: several servers have one each for a tenant, and what each has counted is added up in the
database every few seconds and when a sandbox ends. So servers together can go beyond a limit by what they use in that
time.
"""

from __future__ import annotations

import time

from fumehood.results import RunResult
from fumehood.server.storage.database import Database, Transaction
from fumehood.server.tenants.quotas import DEFAULTS, Limit, Limits, Quota, QuotaExceededError, read_limits
from fumehood.server.tenants.usage import DAY_SECONDS, add_usage, start_of_day, used_since

CPU = "cpu_seconds"
RUNS = "runs"


class TenantMeter:
    """Made by `Meters`, which have read its limits before any run begins."""

    def __init__(self) -> None:
        self._limits: Limits = {quota: Limit(value, "default") for quota, value in DEFAULTS.items()}
        self._running = 0
        self._used_before = 0.0
        """CPU seconds of this day that the database has."""
        self._pending = {CPU: 0.0, RUNS: 0.0}

    @property
    def running(self) -> int:
        return self._running

    def begin(self) -> None:
        if self._running >= self._limits[Quota.RUNS].value:
            raise QuotaExceededError(Quota.RUNS, self._limits[Quota.RUNS], self._running)
        used = self._used_before + self._pending[CPU]
        if used >= self._limits[Quota.CPU].value:
            tomorrow = start_of_day(time.time()) + DAY_SECONDS
            raise QuotaExceededError(Quota.CPU, self._limits[Quota.CPU], round(used, 1), tomorrow)
        self._running += 1

    def end(self, result: RunResult | None, seconds: float) -> None:
        """A run that was left before its end is charged with all its time, so that leaving early saves nothing."""
        self._running -= 1
        self._pending[CPU] += seconds if result is None else result.cpu_ms / 1000
        self._pending[RUNS] += 1

    def add(self, runs: float, cpu_seconds: float) -> None:
        """What runs elsewhere have used."""
        self._pending[CPU] += cpu_seconds
        self._pending[RUNS] += runs

    def limits_for_worker(self) -> dict[str, float]:
        """What another host, which counts for itself, may use from now on."""
        left = self._limits[Quota.CPU].value - self._used_before - self._pending[CPU]
        return {"runs": self._limits[Quota.RUNS].value, "cpu_seconds_left": left}

    async def settle(self, transaction: Transaction, tenant: str) -> None:
        """Adds what is pending to the database, and reads what others have added and the limits that hold now."""
        now = time.time()
        pending, self._pending = self._pending, {CPU: 0.0, RUNS: 0.0}
        try:
            await add_usage(transaction, tenant, now, **{name: amount for name, amount in pending.items() if amount})
            self._used_before = await used_since(transaction, tenant, CPU, start_of_day(now))
            self._limits = await read_limits(transaction, tenant)
        except BaseException:
            for name, amount in pending.items():
                self._pending[name] += amount
            raise


class Meters:
    """One for each tenant that has had a sandbox in this process."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._meters: dict[str, TenantMeter] = {}

    async def of(self, tenant: str) -> TenantMeter:
        """Up to date."""
        meter = self._meters.setdefault(tenant, TenantMeter())
        await self._settle(tenant, meter)
        return meter

    def limits_for_worker(self, tenant: str) -> dict[str, float]:
        """Of a tenant whose meter is up to date."""
        return self._meters[tenant].limits_for_worker()

    def knows(self, tenant: str) -> bool:
        """Whether it has had a sandbox by this process."""
        return tenant in self._meters

    def add(self, tenant: str, runs: float, cpu_seconds: float) -> None:
        """What runs on a worker have used."""
        self._meters[tenant].add(runs, cpu_seconds)

    async def settle_all(self) -> None:
        for tenant, meter in list(self._meters.items()):
            await self._settle(tenant, meter)

    async def _settle(self, tenant: str, meter: TenantMeter) -> None:
        async with self._database.transaction(tenant) as transaction:
            await meter.settle(transaction, tenant)
