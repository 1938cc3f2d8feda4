"""The tables. Times are seconds since 1970, durations seconds, sizes bytes; JSON is text."""

from __future__ import annotations

from fumehood.errors import UsageError
from fumehood.server.storage.database import StorageError, Transaction

VERSION = "4"
"""Of the tables; in the table `facts`, so that a server of another version does not use them."""
FACTS = "CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL)"
READ_VERSION = "SELECT value FROM facts WHERE name = 'schema'"
WRITE_VERSION = f"INSERT INTO facts (name, value) VALUES ('schema', '{VERSION}')"

TABLES: dict[str, str] = {
    "tenants": "tenant TEXT PRIMARY KEY, created DOUBLE PRECISION NOT NULL",
    "keys": (
        "tenant TEXT NOT NULL, id TEXT NOT NULL, sha256 TEXT NOT NULL, name TEXT NOT NULL, scopes TEXT NOT NULL, "
        "networks TEXT NOT NULL, created DOUBLE PRECISION NOT NULL, expires DOUBLE PRECISION, "
        "revoked DOUBLE PRECISION, family TEXT NOT NULL, PRIMARY KEY (tenant, id)"
    ),
    "policies": (
        "tenant TEXT NOT NULL, name TEXT NOT NULL, version BIGINT NOT NULL, text TEXT NOT NULL, digest TEXT NOT NULL, "
        "author TEXT NOT NULL, created DOUBLE PRECISION NOT NULL, PRIMARY KEY (tenant, name, version)"
    ),
    "quotas": (
        "tenant TEXT NOT NULL, name TEXT NOT NULL, value DOUBLE PRECISION NOT NULL, author TEXT NOT NULL, "
        "PRIMARY KEY (tenant, name)"
    ),
    "sandboxes": (
        "tenant TEXT NOT NULL, id TEXT NOT NULL, instance TEXT NOT NULL, policy TEXT NOT NULL, "
        "policy_digest TEXT NOT NULL, principal TEXT NOT NULL, token_sha256 TEXT NOT NULL, metadata TEXT NOT NULL, "
        "opened DOUBLE PRECISION NOT NULL, expires DOUBLE PRECISION NOT NULL, ended DOUBLE PRECISION, cause TEXT, "
        "workspace_bytes BIGINT NOT NULL, "
        "PRIMARY KEY (tenant, id)"
    ),
    "usage": (
        "tenant TEXT NOT NULL, minute BIGINT NOT NULL, name TEXT NOT NULL, amount DOUBLE PRECISION NOT NULL, "
        "PRIMARY KEY (tenant, minute, name)"
    ),
    "running": ("tenant TEXT NOT NULL, instance TEXT NOT NULL, runs BIGINT NOT NULL, PRIMARY KEY (tenant, instance)"),
    "answers": (
        "tenant TEXT NOT NULL, key TEXT NOT NULL, request_sha256 TEXT NOT NULL, status BIGINT NOT NULL, "
        "sealed TEXT NOT NULL, created DOUBLE PRECISION NOT NULL, PRIMARY KEY (tenant, key)"
    ),
    "secrets": (
        "tenant TEXT NOT NULL, name TEXT NOT NULL, sealed TEXT NOT NULL, author TEXT NOT NULL, "
        "created DOUBLE PRECISION NOT NULL, PRIMARY KEY (tenant, name)"
    ),
    "sessions": (
        "tenant TEXT NOT NULL, sha256 TEXT PRIMARY KEY, principal TEXT NOT NULL, scopes TEXT NOT NULL, "
        "signed_in DOUBLE PRECISION NOT NULL, expires DOUBLE PRECISION NOT NULL"
    ),
    "instances": (
        "instance TEXT PRIMARY KEY, started DOUBLE PRECISION NOT NULL, seen DOUBLE PRECISION NOT NULL, "
        "ended DOUBLE PRECISION"
    ),
}
INDEXES = (
    "CREATE UNIQUE INDEX IF NOT EXISTS keys_by_id ON keys (id)",
    "CREATE INDEX IF NOT EXISTS sandboxes_open ON sandboxes (tenant) WHERE ended IS NULL",
    "CREATE INDEX IF NOT EXISTS sandboxes_of_instances ON sandboxes (instance) WHERE ended IS NULL",
)
OF_TENANTS = tuple(name for name in TABLES if name != "instances")
"""Tables whose rows belong to one tenant each."""
_MOST_ROWS = {"keys": 10_000, "policies": 10_000, "secrets": 1_000}
"""That a tenant may have: its keys let it make more, and the disk is that of all tenants."""


def statements() -> list[str]:
    """What makes the tables of a database that has none."""
    tables = [f"CREATE TABLE IF NOT EXISTS {name} ({columns})" for name, columns in TABLES.items()]
    return [*tables, *INDEXES, WRITE_VERSION]


def check_version(found: str) -> None:
    if found != VERSION:
        raise StorageError(
            f"the database has tables of version {found}, and this server needs version {VERSION}; "
            "use the release that made them, or another database"
        )


async def check_room(transaction: Transaction, tenant: str, table: str) -> None:
    """Before another row is made; UsageError if the tenant has as many as it may."""
    row = await transaction.row(f"SELECT COUNT(*) AS n FROM {table} WHERE tenant = ?", tenant)
    most = _MOST_ROWS[table]
    if row and float(row["n"] or 0) >= most:
        raise UsageError(f"the tenant has {most} {table}, those of the past included, and cannot have more")
