"""Secrets of tenants: written through the API, sealed at rest, and never read back by it.

The sealing key is a file that only the server's user can read. What it has sealed is bound to its place: a row that is
copied to another tenant, or under another name, cannot be opened there.
"""

from __future__ import annotations

import os
import re
import time
from base64 import b64decode, b64encode
from pathlib import Path
from typing import cast

from fumehood.errors import UsageError
from fumehood.frozen import frozen
from fumehood.policy.secret import MOST_VALUE_BYTES
from fumehood.server.storage.database import Database
from fumehood.server.storage.schema import check_room

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}", re.ASCII)
_KEY_BYTES = 32
_NONCE_BYTES = 12


@frozen
class SecretDetails:
    """All that may be shown of a secret."""

    name: str
    author: str
    created: float


class SealingKey:
    """AES-256 in GCM. `purpose` says what and whose the data is; it must be the same when it is opened."""

    def __init__(self, key: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._cipher = AESGCM(key)

    @classmethod
    def at(cls, path: Path) -> SealingKey:
        """The key in a file, which is made if there is none."""
        try:
            _make(path)
            with path.open("rb") as file:
                is_open = os.fstat(file.fileno()).st_mode & 0o077
                key = file.read(_KEY_BYTES + 1)
        except OSError as error:
            raise UsageError(f"the sealing key {path} cannot be used: {error.strerror}") from error
        if is_open:
            raise UsageError(f"the sealing key {path} can be used by others; run `chmod 600 {path}`")
        if len(key) != _KEY_BYTES:
            raise UsageError(f"{path} is not a sealing key, which has {_KEY_BYTES} bytes")
        return cls(key)

    def seal(self, data: bytes, *purpose: str) -> str:
        nonce = os.urandom(_NONCE_BYTES)
        return b64encode(nonce + self._cipher.encrypt(nonce, data, _bound(purpose))).decode()

    def open(self, sealed: str, *purpose: str) -> bytes:
        from cryptography.exceptions import InvalidTag

        data = b64decode(sealed)
        try:
            return self._cipher.decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], _bound(purpose))
        except InvalidTag:
            raise UsageError(
                f"{' '.join(purpose)} was sealed with another key, or for another place; "
                "servers of one database need the same `sealing_key`"
            ) from None


def _bound(purpose: tuple[str, ...]) -> bytes:
    return "\0".join(purpose).encode()


def _make(path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return
    with os.fdopen(descriptor, "wb") as file:
        file.write(os.urandom(_KEY_BYTES))
        os.fsync(descriptor)


async def put_secret(database: Database, key: SealingKey, tenant: str, name: str, value: str, author: str) -> None:
    _check_name(name)
    data = value.encode("utf-8", "surrogatepass")
    if not value.strip() or len(data) > MOST_VALUE_BYTES or "\0" in value:
        raise UsageError(f"the value of {name} must be text of up to {MOST_VALUE_BYTES} bytes")
    async with database.transaction(tenant) as transaction:
        if await transaction.row("SELECT 1 AS n FROM secrets WHERE tenant = ? AND name = ?", tenant, name) is None:
            await check_room(transaction, tenant, "secrets")
        await transaction.execute(
            "INSERT INTO secrets (tenant, name, sealed, author, created) VALUES (?,?,?,?,?) ON CONFLICT (tenant, name) "
            "DO UPDATE SET sealed = excluded.sealed, author = excluded.author, created = excluded.created",
            *(tenant, name, key.seal(data, "secret", tenant, name), author, time.time()),
        )


async def remove_secret(database: Database, tenant: str, name: str) -> bool:
    async with database.transaction(tenant) as transaction:
        return bool(await transaction.execute("DELETE FROM secrets WHERE tenant = ? AND name = ?", tenant, name))


async def list_secrets(database: Database, tenant: str) -> list[SecretDetails]:
    async with database.transaction(tenant) as transaction:
        rows = await transaction.rows("SELECT * FROM secrets WHERE tenant = ? ORDER BY name", tenant)
    return [SecretDetails(str(row["name"]), str(row["author"]), float(row["created"] or 0)) for row in rows]


async def read_secrets(database: Database, key: SealingKey, tenant: str) -> dict[str, str]:
    """Name -> value, for a sandbox that is about to open, and for nothing else."""
    statement = "SELECT name, sealed FROM secrets WHERE tenant = ?"
    rows = await database.transact(tenant, lambda each: each.rows(statement, tenant))
    found = [(cast("str", row["name"]), cast("str", row["sealed"])) for row in rows]
    return {name: key.open(sealed, "secret", tenant, name).decode("utf-8", "surrogatepass") for name, sealed in found}


def _check_name(name: str) -> None:
    if _NAME.fullmatch(name) is None:
        raise UsageError(f"{name!r} is not a name of a secret: letters, digits and `_`, such as GITHUB_TOKEN")
