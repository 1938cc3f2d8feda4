"""Tenants: made and removed by operators. All that belongs to one has its name in its key."""

from __future__ import annotations

import re
import time

from fumehood.errors import UsageError
from fumehood.frozen import frozen
from fumehood.policy.named import NAMES, file_of
from fumehood.server.storage import schema
from fumehood.server.storage.database import EVERYTHING, Database, DuplicateError
from fumehood.server.tenants.catalogue import put_policy

DEFAULT_POLICY = "default"
"""What a sandbox has whose opener over HTTP names none."""
_LIKE_DEFAULT = "closed"
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?", re.ASCII)


@frozen
class Tenant:
    name: str
    created: float


class NoSuchTenantError(UsageError):
    def __init__(self, name: str) -> None:
        super().__init__(f"there is no tenant {name!r}; `hood tenant list` has them")


def check_tenant_name(name: str) -> None:
    if _NAME.fullmatch(name) is None:
        raise UsageError(f"{name!r} is not a name of a tenant: small letters, digits and `-`, up to 40")


async def create_tenant(database: Database, name: str, author: str) -> Tenant:
    """A tenant with the policies that come with the package in its catalogue, and the quotas that are the default."""
    check_tenant_name(name)
    tenant = Tenant(name, time.time())
    try:
        async with database.transaction(name) as transaction:
            await transaction.execute("INSERT INTO tenants (tenant, created) VALUES (?, ?)", name, tenant.created)
    except DuplicateError:
        raise UsageError(f"there is a tenant {name!r} already") from None
    for policy in NAMES:
        await put_policy(database, name, policy, _text(policy), author)
    await put_policy(database, name, DEFAULT_POLICY, _text(_LIKE_DEFAULT), author)
    return tenant


async def list_tenants(database: Database) -> list[Tenant]:
    async with database.transaction(EVERYTHING) as transaction:
        rows = await transaction.rows("SELECT tenant, created FROM tenants ORDER BY tenant")
    return [Tenant(str(row["tenant"]), float(row["created"] or 0)) for row in rows]


async def require_tenant(database: Database, name: str) -> None:
    async with database.transaction(name) as transaction:
        if await transaction.row("SELECT 1 AS found FROM tenants WHERE tenant = ?", name) is None:
            raise NoSuchTenantError(name)


async def remove_tenant(database: Database, name: str) -> None:
    """Its keys, policies, quotas, secrets and rows; its audit chain stays. It may have no sandbox open."""
    await require_tenant(database, name)
    async with database.transaction(name) as transaction:
        row = await transaction.row("SELECT COUNT(*) AS n FROM sandboxes WHERE tenant = ? AND ended IS NULL", name)
        if row and row["n"]:
            raise UsageError(f"the tenant {name!r} has {row['n']} open sandboxes; close them first")
        for table in schema.OF_TENANTS:
            await transaction.execute(f"DELETE FROM {table} WHERE tenant = ?", name)


def _text(policy: str) -> str:
    with open(file_of(policy), encoding="utf-8") as file:
        return file.read()
