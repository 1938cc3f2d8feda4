"""Events of a sandbox. Other parts define theirs beside their own code, in the same way.

An event's fields become the record's `data`. They hold text, whole numbers (with the unit in the name), truth values,
and lists or mappings of these; `Attachment` and `Digest` stand for larger things.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import Field
from typing import Any, ClassVar

from fumehood.frozen import frozen
from fumehood.policy.audit import Kept


@frozen
class Digest:
    """The digest of something that is not in the log, by which its owner recognises it."""

    sha256: str
    size: int

    @classmethod
    def of(cls, data: bytes) -> Digest:
        return cls(hashlib.sha256(data).hexdigest(), len(data))


@frozen
class Attachment:
    """Something that is kept in the log beside the records, once for each content, with secrets blacked out."""

    data: bytes


Content = Attachment | Digest | None


def as_content(data: bytes, kept: Kept) -> Content:
    """What the policy lets the log keep of it."""
    match kept:
        case "none":
            return None
        case "digest":
            return Digest.of(data)
        case "full":
            return Attachment(data)


class AuditEvent:
    """Children are frozen dataclasses with a `kind` such as "run.finished"; fields that are None are left out."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    kind: ClassVar[str]


@frozen
class SandboxOpened(AuditEvent):
    kind = "sandbox.opened"

    policy_digest: str
    policy_name: str | None
    policy: Attachment
    """What the digest is a digest of."""
    backend: str
    enforcement: Attachment
    """Control -> mechanism, as JSON."""
    environment_digest: str | None
    image: str | None
    process: int


@frozen
class SandboxRefused(AuditEvent):
    """It did not open: the policy cannot be enforced here, or our machinery failed."""

    kind = "sandbox.refused"

    policy_digest: str
    policy_name: str | None
    error: str
    reason: str


@frozen
class SandboxClosed(AuditEvent):
    kind = "sandbox.closed"


@frozen
class SessionOpened(AuditEvent):
    kind = "session.opened"


@frozen
class SessionClosed(AuditEvent):
    kind = "session.closed"


@frozen
class RunRequested(AuditEvent):
    """Written before anything starts: a program that ran has this record, whatever happened to its host."""

    kind = "run.requested"

    language: str
    command: str | None
    """For a command, the program's name. The words after it are in `code`, as far as the policy keeps them."""
    code: Content
    arguments: Content
    """For a script, its arguments in sys.argv, joined with NUL."""
    stdin: Content | str
    environment: tuple[str, ...] | None
    """Names of variables, without their values."""
    cwd: str | None
    timeout_ms: int
    terminal: str | None


@frozen
class RequestDenied(AuditEvent):
    """The policy does not allow what was asked; nothing was started, and nothing has left."""

    kind = "request.denied"

    action: str
    error: str
    reason: str


@frozen
class EgressDenied(AuditEvent):
    """Something that a run tried on the way out and that was refused, as often as `count` says."""

    kind = "egress.denied"

    attempt: str
    what: str
    reason: str
    rule: str | None
    count: int


@frozen
class EgressAllowed(AuditEvent):
    """Something that a run did on the way out, by the rule that lets it."""

    kind = "egress.allowed"

    attempt: str
    what: str
    rule: str | None
    count: int


@frozen
class CanarySeen(AuditEvent):
    """A value that no program has a reason to send is on its way."""

    kind = "canary.seen"

    canary: str
    where: str


@frozen
class PolicyChanged(AuditEvent):
    """An open sandbox got other network rules."""

    kind = "policy.changed"

    policy_digest: str
    policy: Attachment


@frozen
class RunStarted(AuditEvent):
    kind = "run.started"


@frozen
class RunFinished(AuditEvent):
    kind = "run.finished"

    status: str
    cause: str
    exit_code: int | None
    signal: str | None
    detail: str | None
    duration_us: int | None
    cpu_us: int | None
    peak_memory_bytes: int | None
    truncated: bool | None
    stdin: Content
    """What was written to a live input."""
    stdout: Content
    stderr: Content
    displays: tuple[Mapping[str, object], ...] | None = None
    """What a session displayed, values and figures: number of the `display`, media `type`, and `content`."""
    displays_omitted: int | None = None
    """So many more, which are not listed."""


@frozen
class RunBroke(AuditEvent):
    """Our own machinery failed; how the program fared is not known."""

    kind = "run.broke"

    error: str
    reason: str


@frozen
class FileIn(AuditEvent):
    kind = "file.in"

    path: str
    size: int
    sha256: str


@frozen
class FileOut(AuditEvent):
    kind = "file.out"

    path: str
    size: int
    sha256: str
    target: str | None
    """Where on the host it was put; None when the caller got its content."""


@frozen
class FileOutBegun(AuditEvent):
    """Before the first bytes of a large file leave. `file.out` follows before the last ones do, or `file.broken`."""

    kind = "file.begun"

    path: str
    size: int


@frozen
class FileOutBroken(AuditEvent):
    """A file that had begun to leave did not leave as a whole."""

    kind = "file.broken"

    path: str
    size: int
    """How many bytes may have left."""


@frozen
class FileRemoved(AuditEvent):
    """A file of the host's is deleted because programs deleted their copy of it, and a person agreed."""

    kind = "file.removed"

    path: str
    target: str


@frozen
class ArtifactsFound(AuditEvent):
    """What a run has made that may leave. Nothing has left by that: `file.out` says when it does."""

    kind = "artifacts.found"

    artifacts: tuple[Mapping[str, object], ...]
    """Path, size and digest; of pictures also the `content`, where the policy keeps output in full."""
    problem: str | None
