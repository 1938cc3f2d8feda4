"""API keys: `fh_<id>_<secret><checksum>`.

The secret has 256 random bits, so its plain digest is stored: no guess is ever right. The checksum makes a mistyped key
known without a look into the database, and leaked ones easy to find in texts.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import secrets
import string
import time
import zlib
from collections.abc import Iterable

from fumehood.errors import UsageError
from fumehood.frozen import frozen
from fumehood.server.identity.principals import NotAuthenticatedError, Principal, Scope
from fumehood.server.storage.database import EVERYTHING, Database, Row
from fumehood.server.storage.schema import check_room

_OF_E2B = "e2b_"
_PRINCIPAL = "key:"
_ALPHABET = string.ascii_lowercase + string.digits
_ID_LENGTH = 8
_SECRET_LENGTH = 43
_CHECKSUM_LENGTH = 6
_FORMAT = re.compile(
    rf"fh_([a-z0-9]{{{_ID_LENGTH}}})_([A-Za-z0-9_-]{{{_SECRET_LENGTH}}})([0-9a-f]{{{_CHECKSUM_LENGTH}}})"
)

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@frozen
class KeyDetails:
    """A key as it may be shown: without its secret."""

    id: str
    name: str
    scopes: tuple[Scope, ...]
    networks: tuple[str, ...]
    created: float
    expires: float | None
    revoked: float | None


async def create_key(
    database: Database,
    tenant: str,
    name: str,
    scopes: Iterable[Scope],
    *,
    expires: float | None = None,
    networks: Iterable[str] = (),
    family: str | None = None,
) -> tuple[str, KeyDetails]:
    """The key, which is shown this once, and what is kept of it.

    `family` is that of the principal of the tenant that makes it. Without one it begins its own.
    """
    identifier = "".join(secrets.choice(_ALPHABET) for _ in range(_ID_LENGTH))
    secret = secrets.token_urlsafe(32)
    details = KeyDetails(
        identifier, name, tuple(sorted(set(scopes))), tuple(map(_network, networks)), time.time(), expires, None
    )
    async with database.transaction(tenant) as transaction:
        await check_room(transaction, tenant, "keys")
        await transaction.execute(
            "INSERT INTO keys (tenant, id, sha256, name, scopes, networks, created, expires, family) "
            "VALUES (?,?,?,?,?,?,?,?,?)",
            *(tenant, identifier, _digest(secret), name, " ".join(details.scopes), " ".join(details.networks)),
            *(details.created, expires, family or f"{_PRINCIPAL}{identifier}"),
        )
    return f"fh_{identifier}_{secret}{_checksum(identifier + secret)}", details


async def family_of(database: Database, tenant: str, principal: str) -> str:
    """What all keys have in common that were made with one another: whoever has the first can have had them all.

    The principal that an operator made, or a person, with whose scope `keys` they were made.
    """
    if not principal.startswith(_PRINCIPAL):
        return principal
    async with database.transaction(tenant) as transaction:
        statement = "SELECT family FROM keys WHERE tenant = ? AND id = ?"
        row = await transaction.row(statement, tenant, principal.removeprefix(_PRINCIPAL))
    return str(row["family"]) if row else principal


async def revoke_key(database: Database, tenant: str, identifier: str) -> bool:
    """False if there is none, or it was revoked before."""
    async with database.transaction(tenant) as transaction:
        statement = "UPDATE keys SET revoked = ? WHERE tenant = ? AND id = ? AND revoked IS NULL"
        return bool(await transaction.execute(statement, time.time(), tenant, identifier))


async def list_keys(database: Database, tenant: str) -> list[KeyDetails]:
    async with database.transaction(tenant) as transaction:
        rows = await transaction.rows("SELECT * FROM keys WHERE tenant = ? ORDER BY created", tenant)
    return [_details(row) for row in rows]


async def check_heir(database: Database, principal: Principal, expires: float | None, networks: Iterable[str]) -> None:
    """UsageError for a key that would outlive the one that makes it, or be good where that one is not."""
    async with database.transaction(principal.tenant) as transaction:
        statement = "SELECT * FROM keys WHERE tenant = ? AND id = ?"
        row = await transaction.row(statement, principal.tenant, principal.name.removeprefix(_PRINCIPAL))
    if row is None or not principal.name.startswith(_PRINCIPAL):
        return  # the holder of a token, which has neither
    own = _details(row)
    if own.expires is not None and (expires is None or expires > own.expires):
        raise UsageError("the key would be valid for longer than the one that makes it; give it fewer `days`")
    allowed = [ipaddress.ip_network(network) for network in own.networks]
    wanted = [ipaddress.ip_network(_network(network)) for network in networks]
    if allowed and not (wanted and all(any(_is_within(each, other) for other in allowed) for each in wanted)):
        raise UsageError("the key must have `networks` that are within those of the one that makes it")


def _is_within(network: _Network, other: _Network) -> bool:
    return network.version == other.version and network.subnet_of(other)  # type: ignore[arg-type]  # of one version


async def keys_out_of_force(database: Database) -> frozenset[str]:
    """Principals of keys that were revoked or have expired, of tenants that have sandboxes open."""
    async with database.transaction(EVERYTHING) as transaction:
        rows = await transaction.rows(
            "SELECT id FROM keys WHERE (revoked IS NOT NULL OR expires <= ?) "
            "AND EXISTS (SELECT 1 FROM sandboxes WHERE sandboxes.tenant = keys.tenant AND sandboxes.ended IS NULL)",
            time.time(),
        )
    return frozenset(f"{_PRINCIPAL}{row['id']}" for row in rows)


async def authenticate(database: Database, key: str, address: str | None) -> Principal:
    """NotAuthenticatedError unless it is a key, of this very secret, in force, and used from where it may be."""
    parts = _FORMAT.fullmatch(_own_spelling(key))
    if parts is None or not hmac.compare_digest(_checksum(parts[1] + parts[2]), parts[3]):
        raise NotAuthenticatedError
    row = await database.transact(EVERYTHING, lambda each: each.row("SELECT * FROM keys WHERE id = ?", parts[1]))
    stored = str(row["sha256"]) if row else _digest("")
    if not hmac.compare_digest(stored, _digest(parts[2])) or row is None:
        raise NotAuthenticatedError
    details = _details(row)
    if not _is_in_force(details) or not _may_come_from(details, address):
        raise NotAuthenticatedError
    return Principal(str(row["tenant"]), f"{_PRINCIPAL}{details.id}", frozenset(details.scopes))


async def find_principal(database: Database, tenant: str, identifier: str, address: str | None) -> Principal | None:
    """Of a key that was shown before, while it is in force and used from where it may be."""
    async with database.transaction(tenant) as transaction:
        row = await transaction.row("SELECT * FROM keys WHERE tenant = ? AND id = ?", tenant, identifier)
    details = _details(row) if row else None
    if details is None or not _is_in_force(details) or not _may_come_from(details, address):
        return None
    return Principal(tenant, f"key:{details.id}", frozenset(details.scopes))


def e2b_spelling(key: str) -> str:
    """The same key for E2B's SDKs, which may want theirs to look like `e2b_` and hexadecimal digits."""
    return f"{_OF_E2B}{key.encode().hex()}"


def _own_spelling(key: str) -> str:
    if not key.startswith(_OF_E2B):
        return key
    try:
        return bytes.fromhex(key.removeprefix(_OF_E2B)).decode("ascii")
    except ValueError:
        raise NotAuthenticatedError from None


def _is_in_force(details: KeyDetails) -> bool:
    return details.revoked is None and (details.expires is None or time.time() < details.expires)


def _may_come_from(details: KeyDetails, address: str | None) -> bool:
    if not details.networks:
        return True
    try:
        source = ipaddress.ip_address(address or "")
    except ValueError:
        return False
    return any(source in ipaddress.ip_network(network) for network in details.networks)


def _network(text: str) -> str:
    try:
        return str(ipaddress.ip_network(text))
    except ValueError as error:
        raise UsageError(f"{text!r} is not a network: write 10.0.0.0/8 or 2001:db8::/32") from error


def _details(row: Row) -> KeyDetails:
    expires, revoked = row["expires"], row["revoked"]
    return KeyDetails(
        str(row["id"]),
        str(row["name"]),
        tuple(Scope(scope) for scope in str(row["scopes"]).split()),
        tuple(str(row["networks"]).split()),
        float(row["created"] or 0),
        None if expires is None else float(expires),
        None if revoked is None else float(revoked),
    )


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _checksum(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"[-_CHECKSUM_LENGTH:]
