"""A tenant's policies, by name and version. A sandbox of the tenant has one of them, narrowed or as it is."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

from fumehood.errors import DeniedError, PolicyError, UsageError
from fumehood.frozen import frozen
from fumehood.policy import Policy, deny_all
from fumehood.policy.decisions import TestResult
from fumehood.server.storage.database import Database, Row, Transaction
from fumehood.server.storage.schema import check_room
from fumehood.server.tenants.policy_work import beside_the_loop, check_length, try_tests

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_WITHOUT_TEXT = "name, version, '' AS text, digest, author, created"
_MOST_CHARACTERS = 4 * 1024 * 1024
_NARROWED = frozenset({"timeout", "memory", "cpus", "disk", "processes", "output"})


@frozen
class CatalogueEntry:
    name: str
    version: int
    text: str
    digest: str
    author: str
    created: float


class FailedTestsError(UsageError):
    """A policy whose own tests fail is not accepted."""

    def __init__(self, failures: Sequence[str]) -> None:
        super().__init__("the tests of the policy fail:\n" + "\n".join(failures))
        self.failures = list(failures)


class NewerVersionError(UsageError):
    """Somebody has saved another version since the one that a text was made from."""

    def __init__(self, version: int) -> None:
        super().__init__(f"version {version} was saved since")
        self.version = version


async def put_policy(
    database: Database,
    tenant: str,
    name: str,
    text: str,
    author: str,
    record: Callable[[CatalogueEntry], Awaitable[None]] | None = None,
    based_on: int | None = None,
) -> CatalogueEntry:
    """A new version, unless it is what the newest one says already. If `record` fails, there is none.

    With `based_on`, NewerVersionError unless that is the newest one when this one is stored.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is not the name of a policy: small letters, digits, `.`, `_` and `-`, up to 63")
    policy, results = await beside_the_loop(tenant, lambda: read_and_try(text, name))
    failures = [_in_words(result) for result in results if not result.passed]
    if failures:
        raise FailedTestsError(failures)
    async with database.transaction(tenant) as transaction:
        newest = await _newest(transaction, tenant, name)
        if based_on is not None and (newest is None or newest.version != based_on):
            raise NewerVersionError(newest.version if newest else 0)
        if newest is not None and newest.text == text:
            return newest
        await check_room(transaction, tenant, "policies")
        await _check_texts(transaction, tenant, len(text))
        version = 1 if newest is None else newest.version + 1
        entry = CatalogueEntry(name, version, text, policy.digest, author, time.time())
        await transaction.execute(
            "INSERT INTO policies (tenant, name, version, text, digest, author, created) VALUES (?,?,?,?,?,?,?)",
            *(tenant, name, version, text, policy.digest, author, entry.created),
        )
        if record is not None:
            await record(entry)
    return entry


async def _check_texts(transaction: Transaction, tenant: str, more: int) -> None:
    row = await transaction.row("SELECT COALESCE(SUM(LENGTH(text)), 0) AS n FROM policies WHERE tenant = ?", tenant)
    if row and float(row["n"] or 0) + more > _MOST_CHARACTERS:
        raise UsageError(f"all versions of the tenant's policies may have {_MOST_CHARACTERS} characters together")


def _in_words(result: TestResult) -> str:
    decision, expected = result.decision, result.expectation.expect
    verdict = f"expected {expected}, and it is {decision.verdict}: {decision.reason}"
    return f"tests[{result.index}]: {decision.attempt}: {verdict}"


async def find_policy(database: Database, tenant: str, name: str) -> Policy | None:
    entry = await database.transact(tenant, lambda each: _newest(each, tenant, name))
    return None if entry is None else await read_beside(tenant, entry.text, name)


async def list_policies(database: Database, tenant: str, name: str | None = None) -> list[CatalogueEntry]:
    """All versions, of one name or of all, the newest of each name first; without their texts."""
    statement = f"SELECT {_WITHOUT_TEXT} FROM policies WHERE tenant = ? {'AND name = ? ' if name else ''}"
    async with database.transaction(tenant) as transaction:
        names = () if name is None else (name,)
        rows = await transaction.rows(f"{statement}ORDER BY name, version DESC", tenant, *names)
    return [_entry(row) for row in rows]


async def find_version(database: Database, tenant: str, name: str, version: int | None) -> CatalogueEntry | None:
    """One version with its text; the newest if none is given."""
    async with database.transaction(tenant) as transaction:
        if version is None:
            return await _newest(transaction, tenant, name)
        statement = "SELECT * FROM policies WHERE tenant = ? AND name = ? AND version = ?"
        row = await transaction.row(statement, tenant, name, version)
    return _entry(row) if row else None


async def read_beside(tenant: str, text: str, name: str) -> Policy:
    """As `read_tenant_policy`, without holding up others."""
    return await beside_the_loop(tenant, lambda: read_tenant_policy(text, name))


def read_and_try(text: str, name: str) -> tuple[Policy, list[TestResult]]:
    policy = read_tenant_policy(text, name)
    return policy, try_tests(policy)


def read_tenant_policy(text: str, name: str) -> Policy:
    """With the name of the catalogue, by which records lead back to it.

    PolicyError for what would reach beyond the tenant: files, engines and secrets of the server's host.
    """
    check_length(text)
    policy = Policy.loads(text, name, "/nonexistent")
    check_tenant_policy(policy, name)
    return policy.model_copy(update={"name": name})


def check_tenant_policy(policy: Policy, name: str) -> None:
    problems = [f"{name}: {key}: a policy of a tenant cannot have it: {why}" for key, why in _beyond(policy)]
    if problems:
        raise PolicyError(problems)


def _beyond(policy: Policy) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    if policy.filesystem.mounts:
        found.append(("filesystem.mounts", "they are files of the server; upload what programs need"))
    if policy.docker != deny_all().docker:
        found.append(("docker", "which engine a tenant has is configured by those who run the server"))
    if any(value.from_file is not None for value in (*policy.secrets, *policy.filters.canaries)):
        found.append(("secrets", "a file of the server; `from_env` names a secret of the tenant's"))
    if policy.environment.requirements is not None:
        found.append(("environment.requirements", "it is a file of the server; write `packages`"))
    return found


def narrow(policy: Policy, resources: Mapping[str, object], *, network: bool) -> Policy:
    """Lower limits and no network, for one sandbox: nothing else can be said to be narrower in every case."""
    if unknown := sorted(set(resources) - _NARROWED):
        raise UsageError(f"{unknown[0]} cannot be narrowed; {', '.join(sorted(_NARROWED))} can")
    narrowed = policy.override({"resources": dict(resources)}) if resources else policy
    for name in resources:
        if getattr(narrowed.resources, name) > getattr(policy.resources, name):
            raise DeniedError(f"resources.{name} is more than the policy's; a sandbox can have less, not more")
    return narrowed if network else narrowed.override({"network": {"allow": []}, "secrets": []})


async def _newest(transaction: Transaction, tenant: str, name: str) -> CatalogueEntry | None:
    row = await transaction.row(
        "SELECT * FROM policies WHERE tenant = ? AND name = ? ORDER BY version DESC LIMIT 1", tenant, name
    )
    return _entry(row) if row else None


def _entry(row: Row) -> CatalogueEntry:
    return CatalogueEntry(
        str(row["name"]),
        int(row["version"] or 0),
        str(row["text"]),
        str(row["digest"]),
        str(row["author"]),
        float(row["created"] or 0),
    )
