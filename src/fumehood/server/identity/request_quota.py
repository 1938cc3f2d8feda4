"""The quota of requests a second: a token bucket for each tenant, in the memory of one server."""

from __future__ import annotations

import asyncio
import time

from fumehood.egress.limits import TokenBucket
from fumehood.server.storage.database import Database
from fumehood.server.tenants.quotas import Limit, Quota, QuotaExceededError, read_limits

_KNOWN_SECONDS = 5.0
_MOST_TENANTS = 10_000
_LEAST_WAIT_SECONDS, _MOST_WAIT_SECONDS = 0.01, 5.0


class RequestQuota:
    """How many requests a tenant may make is looked up every few seconds, not for each of them."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._buckets: dict[str, TokenBucket] = {}
        self._limits: dict[str, tuple[Limit, float]] = {}

    async def take(self, tenant: str) -> None:
        """QuotaExceededError if there were too many lately."""
        limit = await self._limit(tenant)
        if tenant not in self._buckets:
            self._buckets[tenant] = TokenBucket(_burst(limit), limit.value)
        if not self._buckets[tenant].take():
            wait = 1 / limit.value if limit.value else 60.0
            raise QuotaExceededError(Quota.REQUESTS, limit, limit.value, time.time() + wait)

    async def wait(self, tenant: str) -> None:
        """As `take`, for calls that can be held back: a burst is slowed down, and refused only if it goes on."""
        end = time.monotonic() + _MOST_WAIT_SECONDS
        while True:
            try:
                return await self.take(tenant)
            except QuotaExceededError as error:
                pause = max((error.resets or 0) - time.time(), _LEAST_WAIT_SECONDS)
                if time.monotonic() + pause > end:
                    raise
            await asyncio.sleep(pause)

    def forget(self, tenant: str) -> None:
        """Its limit has changed."""
        self._limits.pop(tenant, None)

    async def _limit(self, tenant: str) -> Limit:
        known = self._limits.get(tenant)
        if known and known[1] > time.monotonic():
            return known[0]
        async with self._database.transaction(tenant) as transaction:
            limit = (await read_limits(transaction, tenant))[Quota.REQUESTS]
        if len(self._limits) >= _MOST_TENANTS:
            self._limits.clear()
            self._buckets.clear()
        self._limits[tenant] = limit, time.monotonic() + _KNOWN_SECONDS
        if bucket := self._buckets.get(tenant):
            bucket.change(_burst(limit), limit.value)
        return limit


def _burst(limit: Limit) -> float:
    """A second's worth at once, and at least one unless there may be none at all."""
    return max(1.0, limit.value) if limit.value else 0.0
