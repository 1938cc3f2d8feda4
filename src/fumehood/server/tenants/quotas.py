"""What a tenant may have and use. Each number is compared where it is counted, in one transaction or by the kernel."""

from __future__ import annotations

from enum import StrEnum

from fumehood.errors import QuotaError, UsageError
from fumehood.frozen import frozen
from fumehood.policy.quantities import GIB
from fumehood.server.storage.database import Database, Transaction
from fumehood.server.tenants.usage import CPU, DAY_SECONDS, EGRESS, OPENINGS, start_of_day, used_today, used_within

_OF_THE_SERVER = "default"
_MOST = 1e15


class Quota(StrEnum):
    SANDBOXES = "sandboxes"
    """Open at once."""
    OPENINGS = "openings_per_minute"
    RUNS = "runs"
    """Under way at once."""
    CPU = "cpu_seconds_per_day"
    MEMORY = "memory"
    """Bytes of all sandboxes of the tenant together; the kernel holds it."""
    WORKSPACE = "workspace_bytes"
    """Of all open sandboxes together, as their policies limit them."""
    EGRESS = "egress_bytes_per_day"
    """Exchanged with the outside through the gateway, in both directions."""
    REQUESTS = "requests_per_second"
    """Requests over HTTP, and calls of the channel."""
    NAMED = "named_sandboxes"
    SNAPSHOTS = "snapshots"
    DISK = "disk"
    """Bytes of all named sandboxes and snapshots together."""


DEFAULTS: dict[Quota, float] = {
    Quota.SANDBOXES: 20,
    Quota.OPENINGS: 120,
    Quota.RUNS: 20,
    Quota.CPU: 4 * 3600,
    Quota.MEMORY: 4 * GIB,
    Quota.WORKSPACE: 64 * GIB,
    Quota.EGRESS: 16 * GIB,
    Quota.REQUESTS: 50,
    Quota.NAMED: 100,
    Quota.SNAPSHOTS: 1000,
    Quota.DISK: 10 * GIB,
}


@frozen
class Limit:
    value: float
    author: str
    """Who set it, or `default`."""


Limits = dict[Quota, Limit]


class QuotaExceededError(QuotaError):
    """The tenant is at a limit. `resets` is when it has room again, as far as that is known."""

    def __init__(self, quota: Quota, limit: Limit, used: float, resets: float | None = None) -> None:
        text = (
            f"the quota {quota.value} is used up: {used:g} of {limit.value:g} (set by {limit.author}); "
            "try again later, or ask who runs the server for more"
        )
        super().__init__(text, quota=quota.value, most=limit.value, used=used, resets=resets)
        self.author = limit.author


async def read_limits(transaction: Transaction, tenant: str) -> Limits:
    rows = await transaction.rows("SELECT name, value, author FROM quotas WHERE tenant = ?", tenant)
    own = {str(row["name"]): Limit(float(row["value"] or 0), str(row["author"])) for row in rows}
    return {quota: own.get(quota, Limit(value, _OF_THE_SERVER)) for quota, value in DEFAULTS.items()}


@frozen
class QuotaState:
    quota: Quota
    limit: Limit
    used: float | None
    """None where the kernel counts, or one server for itself."""
    resets: float | None


async def read_state(database: Database, tenant: str, now: float) -> list[QuotaState]:
    async with database.transaction(tenant) as transaction:
        limits = await read_limits(transaction, tenant)
        sandboxes, workspace_bytes = await count_open(transaction, tenant)
        tomorrow, minute = start_of_day(now) + DAY_SECONDS, now - now % 60
        used: dict[Quota, tuple[float, float | None]] = {
            Quota.SANDBOXES: (sandboxes, None),
            Quota.WORKSPACE: (workspace_bytes, None),
            Quota.RUNS: (await count_running(transaction, tenant), None),
            Quota.OPENINGS: (await used_within(transaction, tenant, OPENINGS, minute, 60), minute + 60),
            Quota.CPU: (await used_today(transaction, tenant, CPU, now), tomorrow),
            Quota.EGRESS: (await used_today(transaction, tenant, EGRESS, now), tomorrow),
        }
    return [QuotaState(quota, limit, *used.get(quota, (None, None))) for quota, limit in limits.items()]


async def count_open(transaction: Transaction, tenant: str) -> tuple[float, float]:
    """How many sandboxes it has open, and the bytes that their workspaces may have."""
    row = await transaction.row(
        "SELECT COUNT(*) AS n, COALESCE(SUM(workspace_bytes), 0) AS bytes FROM sandboxes "
        "WHERE tenant = ? AND ended IS NULL",
        tenant,
    )
    return (float(row["n"] or 0), float(row["bytes"] or 0)) if row else (0.0, 0.0)


async def count_running(transaction: Transaction, tenant: str, *, but: str = "") -> float:
    """Runs under way, as servers counted them last; `but` leaves out those of one."""
    row = await transaction.row(
        "SELECT COALESCE(SUM(runs), 0) AS n FROM running WHERE tenant = ? AND instance <> ?", tenant, but
    )
    return float(row["n"] or 0) if row else 0.0


async def note_running(transaction: Transaction, tenant: str, instance: str, runs: int) -> None:
    await transaction.execute(
        "INSERT INTO running (tenant, instance, runs) VALUES (?,?,?) "
        "ON CONFLICT (tenant, instance) DO UPDATE SET runs = excluded.runs",
        *(tenant, instance, runs),
    )


async def set_limit(database: Database, tenant: str, quota: Quota, value: float, author: str) -> None:
    if not 0 <= value <= _MOST:
        raise UsageError(f"{quota.value}: {value} is not a quota; give a number from 0 to 1e15")
    async with database.transaction(tenant) as transaction:
        await transaction.execute(
            "INSERT INTO quotas (tenant, name, value, author) VALUES (?,?,?,?) "
            "ON CONFLICT (tenant, name) DO UPDATE SET value = excluded.value, author = excluded.author",
            *(tenant, quota.value, value, author),
        )
