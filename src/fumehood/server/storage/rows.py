"""How many rows of a table a tenant may have: its keys let it make more, and the disk is that of all tenants."""

from __future__ import annotations

from fumehood.errors import UsageError
from fumehood.server.storage.database import Transaction

_MOST = {"keys": 10_000, "policies": 10_000, "secrets": 1_000}


async def check_rows(transaction: Transaction, tenant: str, table: str) -> None:
    """Before another one is made; UsageError if there are as many as there may be."""
    row = await transaction.row(f"SELECT COUNT(*) AS n FROM {table} WHERE tenant = ?", tenant)
    if row and float(row["n"] or 0) >= _MOST[table]:
        raise UsageError(f"the tenant has {_MOST[table]} {table}, those of the past included, and cannot have more")
