"""The audit log: every event is written to it before its result is returned, and later changes are detected.

Owns what a record looks like and how records form a chain (`records`), what is signed of them and by whom (`keys`,
`checkpoints`, `prunings`), where they are kept (`store`, `sqlite`, `schema`, `disk_sync`, `location`), and how they are
written (`log`, `trail`), verified (`verification`, `inspection`), found (`store.Query`), exported (`export`, `spans`)
and removed (`retention`).

Must not know sandboxes, backends or the gateway: a part that records something makes a frozen dataclass of it, a child
of `AuditEvent` with a `kind`, and writes it to the trail that it was given. `events` has those of the sandbox.

    audit/                  0700, the user's own
        audit.db            the records, SQLite in WAL mode
        key.pem, key.pub    what signs checkpoints (0600), and what everybody may have to check them
        checkpoint.json     the newest checkpoint; a copy kept elsewhere tells when the log is rolled back
"""

from fumehood.audit.events import Attachment, AuditEvent, Digest
from fumehood.audit.log import AuditLog
from fumehood.audit.records import Record
from fumehood.audit.store import Query
from fumehood.audit.trail import Trail

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fumehood.audit.verification import Problem, Report

__all__ = ["Attachment", "AuditEvent", "AuditLog", "Digest", "Problem", "Query", "Record", "Report", "Trail"]


def __getattr__(name: str) -> object:
    """What verifies a log is imported when it is first used; nothing that writes to one needs it."""
    if name not in ("Problem", "Report"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fumehood.audit import verification

    return getattr(verification, name)
