"""What a tenant has used, in minutes: added up from what the records of its runs say."""

from __future__ import annotations

import math

from fumehood.server.storage.database import Transaction

_MINUTE_SECONDS = 60
DAY_SECONDS = 86400
OPENINGS = "openings"
RUNS = "runs"
CPU = "cpu_seconds"
MEMORY = "memory_byte_seconds"
EGRESS = "egress_bytes"


async def add_usage(transaction: Transaction, tenant: str, now: float, **amounts: float) -> None:
    minute = int(now) // _MINUTE_SECONDS
    for name, amount in amounts.items():
        await transaction.execute(
            "INSERT INTO usage (tenant, minute, name, amount) VALUES (?,?,?,?) "
            "ON CONFLICT (tenant, minute, name) DO UPDATE SET amount = usage.amount + excluded.amount",
            *(tenant, minute, name, amount),
        )


async def used_within(transaction: Transaction, tenant: str, name: str, begin: float, seconds: float) -> float:
    """Of this time and no other: what was counted while the clock was wrong, and lies in the future, blocks nothing."""
    row = await transaction.row(
        "SELECT COALESCE(SUM(amount), 0) AS total FROM usage "
        "WHERE tenant = ? AND name = ? AND minute >= ? AND minute < ?",
        *(tenant, name, int(begin) // _MINUTE_SECONDS, int(begin + seconds) // _MINUTE_SECONDS),
    )
    return float(row["total"] or 0) if row else 0.0


async def usage_by_hour(
    transaction: Transaction, tenant: str, since: float, until: float
) -> list[tuple[float, str, float]]:
    """Beginning of the hour, name, amount."""
    rows = await transaction.rows(
        "SELECT minute / 60 AS hour, name, SUM(amount) AS total FROM usage WHERE tenant = ? AND minute >= ? AND "
        "minute < ? GROUP BY minute / 60, name ORDER BY minute / 60, name",
        *(tenant, int(since) // _MINUTE_SECONDS, math.ceil(until / _MINUTE_SECONDS)),
    )
    return [(float(row["hour"] or 0) * 3600, str(row["name"]), float(row["total"] or 0)) for row in rows]


async def used_today(transaction: Transaction, tenant: str, name: str, now: float) -> float:
    return await used_within(transaction, tenant, name, start_of_day(now), DAY_SECONDS)


def start_of_day(now: float) -> float:
    """In universal time."""
    return now - now % DAY_SECONDS
