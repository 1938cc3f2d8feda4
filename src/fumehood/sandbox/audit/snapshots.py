"""Records of snapshots and named sandboxes. What is on disk is recorded before its caller learns that it is."""

from __future__ import annotations

from fumehood.audit import Attachment, Trail
from fumehood.audit.events import AuditEvent
from fumehood.audit.log import current_user
from fumehood.audit.trail import OFF
from fumehood.frozen import frozen
from fumehood.sandbox.audit.choice import AuditChoice, find_trail


@frozen
class SnapshotMade(AuditEvent):
    kind = "snapshot.made"

    snapshot: str
    name: str | None
    files: int
    size_bytes: int
    new_bytes: int


@frozen
class SnapshotRestored(AuditEvent):
    """The workspace of a sandbox begins with it."""

    kind = "snapshot.restored"

    snapshot: str
    sandbox_name: str | None


@frozen
class SnapshotRemoved(AuditEvent):
    kind = "snapshot.removed"

    snapshot: str
    name: str | None


@frozen
class SandboxCreated(AuditEvent):
    """A sandbox got a name, and with it a state that stays."""

    kind = "sandbox.created"

    name: str
    snapshot: str
    policy_digest: str
    policy: Attachment
    source: str
    """Where its files come from: `empty`, a snapshot, a sandbox that was forked, or an archive."""


@frozen
class SandboxSaved(AuditEvent):
    kind = "sandbox.saved"

    name: str
    snapshot: str
    files: int
    size_bytes: int
    new_bytes: int


@frozen
class SandboxForked(AuditEvent):
    """Copies of the workspace were made that have no names."""

    kind = "sandbox.forked"

    snapshot: str
    count: int


@frozen
class SandboxPolicyChanged(AuditEvent):
    """A named sandbox got another policy, for this use and those to come."""

    kind = "sandbox.policy"

    name: str
    old_digest: str
    policy_digest: str
    policy: Attachment


@frozen
class SandboxExported(AuditEvent):
    kind = "sandbox.exported"

    name: str
    snapshot: str
    target: str
    files: int
    sha256: str
    is_everything: bool
    """Whether files left, too, that `filesystem.outputs` of the policy does not name."""


@frozen
class SandboxRemoved(AuditEvent):
    kind = "sandbox.removed"

    name: str
    snapshot: str


def store_trail(choice: AuditChoice = None) -> Trail:
    """For what happens to a named sandbox while it is not open."""
    chosen = find_trail(choice)
    return Trail(chosen.log, chosen.who or current_user(), chosen.tenant, chosen.ids) if chosen.is_on else OFF
