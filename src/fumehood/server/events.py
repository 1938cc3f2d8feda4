"""Events of the server's own audit chain: what changes who may do what, and who has read records."""

from __future__ import annotations

from fumehood.audit.events import AuditEvent
from fumehood.frozen import frozen


@frozen
class ServerStarted(AuditEvent):
    kind = "server.started"

    instance: str
    version: str


@frozen
class ServerEnded(AuditEvent):
    kind = "server.ended"

    instance: str


@frozen
class InstanceBuried(AuditEvent):
    """Another server has not been seen for long; the sandboxes that it had open are lost."""

    kind = "server.lost"

    instance: str


@frozen
class WorkerDrained(AuditEvent):
    """An operator takes a worker of the cluster out of service."""

    kind = "worker.drained"

    name: str


@frozen
class TenantCreated(AuditEvent):
    kind = "tenant.created"

    name: str


@frozen
class TenantRemoved(AuditEvent):
    kind = "tenant.removed"

    name: str


@frozen
class KeyCreated(AuditEvent):
    kind = "key.created"

    owner: str
    key: str
    name: str
    scopes: tuple[str, ...]
    networks: tuple[str, ...]
    expires: int | None


@frozen
class KeyRevoked(AuditEvent):
    kind = "key.revoked"

    owner: str
    key: str


@frozen
class QuotaSet(AuditEvent):
    kind = "quota.set"

    owner: str
    quota: str
    value: str


@frozen
class CatalogueChanged(AuditEvent):
    kind = "catalogue.changed"

    name: str
    number: int
    policy_digest: str


@frozen
class SecretSet(AuditEvent):
    """Never the value, nor a digest of it, by which it could be guessed."""

    kind = "secret.set"

    name: str


@frozen
class SecretRemoved(AuditEvent):
    kind = "secret.removed"

    name: str


@frozen
class RecordsRead(AuditEvent):
    """A holder of the scope `audit` has read records of the tenant's chain."""

    kind = "records.read"

    how: str
    after: int
    count: int | None


@frozen
class MountSent(AuditEvent):
    """A client has sent files along, to be mounted in the sandbox that it opens next."""

    kind = "mount.sent"

    mount: str
    entries: int
    size: int
    sha256: str
    """Of all of them as they were sent."""
