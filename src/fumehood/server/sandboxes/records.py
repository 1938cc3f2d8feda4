"""The rows of sandboxes: a sandbox is admitted, lives, and has one end, which is kept for a day."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping

from fumehood.frozen import frozen
from fumehood.server.storage.database import EVERYTHING, Database, Row, Transaction
from fumehood.server.tenants.quotas import Limits, Quota, QuotaExceededError, count_open, read_limits
from fumehood.server.tenants.usage import CPU, DAY_SECONDS, OPENINGS, add_usage, start_of_day, used_today, used_within

KEPT_SECONDS = 86400
_MINUTE_SECONDS = 60


@frozen
class SandboxRecord:
    id: str
    policy: str
    policy_digest: str
    principal: str
    metadata: Mapping[str, str]
    opened: float
    expires: float
    ended: float | None
    cause: str | None
    """Why it has ended: closed, expired, idle, lost, drained."""
    workspace_bytes: int = 0
    """The most that its workspace may hold, by its policy."""


async def admit(database: Database, tenant: str, instance: str, record: SandboxRecord, token: str) -> Limits:
    """Counts, compares and inserts in one step. QuotaExceededError if the tenant has no room for another."""

    async def insert(transaction: Transaction) -> Limits:
        limits = await _check(transaction, tenant, record)
        await transaction.execute(
            "INSERT INTO sandboxes (tenant, id, instance, policy, policy_digest, principal, token_sha256, metadata, "
            "opened, expires, workspace_bytes) VALUES (?,?,?,?,?,?,?,?,?,?,?)",
            *(tenant, record.id, instance, record.policy, record.policy_digest, record.principal, digest(token)),
            *(json.dumps(dict(record.metadata)), record.opened, record.expires, record.workspace_bytes),
        )
        await add_usage(transaction, tenant, record.opened, **{OPENINGS: 1})
        return limits

    return await database.transact(tenant, insert)


async def _check(transaction: Transaction, tenant: str, record: SandboxRecord) -> Limits:
    limits = await read_limits(transaction, tenant)
    is_open, workspace_bytes = await count_open(transaction, tenant)
    if is_open >= limits[Quota.SANDBOXES].value:
        raise QuotaExceededError(Quota.SANDBOXES, limits[Quota.SANDBOXES], is_open)
    if workspace_bytes + record.workspace_bytes > limits[Quota.WORKSPACE].value:
        raise QuotaExceededError(Quota.WORKSPACE, limits[Quota.WORKSPACE], workspace_bytes)
    now = record.opened
    minute = now - now % _MINUTE_SECONDS
    lately = await used_within(transaction, tenant, OPENINGS, minute, _MINUTE_SECONDS)
    if lately >= limits[Quota.OPENINGS].value:
        raise QuotaExceededError(Quota.OPENINGS, limits[Quota.OPENINGS], lately, minute + _MINUTE_SECONDS)
    spent = await used_today(transaction, tenant, CPU, now)
    if spent >= limits[Quota.CPU].value:
        raise QuotaExceededError(Quota.CPU, limits[Quota.CPU], spent, start_of_day(now) + DAY_SECONDS)
    return limits


async def end(database: Database, tenant: str, identifier: str, cause: str) -> bool:
    """The first end counts; False if it had one."""
    statement = "UPDATE sandboxes SET ended = ?, cause = ? WHERE tenant = ? AND id = ? AND ended IS NULL"
    ended = time.time()
    return bool(await database.transact(tenant, lambda each: each.execute(statement, ended, cause, tenant, identifier)))


async def find(database: Database, tenant: str, identifier: str) -> SandboxRecord | None:
    statement = "SELECT * FROM sandboxes WHERE tenant = ? AND id = ?"
    row = await database.transact(tenant, lambda each: each.row(statement, tenant, identifier))
    return _record(row) if row else None


async def list_open(database: Database, tenant: str) -> list[SandboxRecord]:
    async with database.transaction(tenant) as transaction:
        rows = await transaction.rows(
            "SELECT * FROM sandboxes WHERE tenant = ? AND ended IS NULL ORDER BY opened", tenant
        )
    return [_record(row) for row in rows]


async def lose_all(transaction: Transaction, instance: str) -> None:
    """What a server that is gone had open is lost with it, runs included."""
    await transaction.execute("DELETE FROM running WHERE instance = ?", instance)
    statement = "UPDATE sandboxes SET ended = ?, cause = 'lost' WHERE instance = ? AND ended IS NULL"
    await transaction.execute(statement, time.time(), instance)


async def list_lost(database: Database) -> dict[str, dict[str, float]]:
    """Tenant -> those of its sandboxes that were lost with their server, and when they were opened."""
    async with database.transaction(EVERYTHING) as transaction:
        rows = await transaction.rows("SELECT tenant, id, opened FROM sandboxes WHERE cause = 'lost'")
    lost: dict[str, dict[str, float]] = {}
    for row in rows:
        lost.setdefault(str(row["tenant"]), {})[str(row["id"])] = float(row["opened"] or 0)
    return lost


async def forget_ended(database: Database) -> int:
    async with database.transaction(EVERYTHING) as transaction:
        return await transaction.execute("DELETE FROM sandboxes WHERE ended < ?", time.time() - KEPT_SECONDS)


def digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _record(row: Row) -> SandboxRecord:
    ended, cause = row["ended"], row["cause"]
    return SandboxRecord(
        str(row["id"]),
        str(row["policy"]),
        str(row["policy_digest"]),
        str(row["principal"]),
        json.loads(str(row["metadata"])),
        float(row["opened"] or 0),
        float(row["expires"] or 0),
        None if ended is None else float(ended),
        None if cause is None else str(cause),
        int(row["workspace_bytes"] or 0),
    )
