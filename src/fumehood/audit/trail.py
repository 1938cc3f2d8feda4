"""A writer to the log: who acts, for which tenant and ids, and which secrets are removed.

Trails are cheap and frozen: a sandbox writes to one that carries its id, a run to one that carries the run's as well.
Without a log nothing is written and nothing is prevented; only the application can decide so.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, fields, replace
from functools import cache
from typing import cast

import anyio
import anyio.to_thread

from fumehood.audit.events import Attachment, AuditEvent, Digest
from fumehood.audit.log import AuditLog
from fumehood.audit.records import Entry, timestamp
from fumehood.audit.store import BusyError, Patience, patiently
from fumehood.frozen import frozen
from fumehood.secret_scan.redaction import Redaction

# Types of values that are in a record as they are: looked up, because it is asked of every field of every record.
_UNCHANGED, _WHEN_REDACTING = frozenset((int, str)), frozenset((int,))


@frozen
class Trail:
    log: AuditLog | None = None
    who: str = ""
    tenant: str | None = None
    ids: Mapping[str, str] = field(default_factory=dict[str, str])
    redaction: Redaction = field(default_factory=Redaction)
    synced: bool = False
    """Whether what is written is on the disk, and not only with the operating system, when `write` returns."""

    @property
    def is_on(self) -> bool:
        return self.log is not None

    def within(self, **ids: str) -> Trail:
        """The trail of a part of this: of a run of a sandbox, or an egress decision of a run."""
        return Trail(self.log, self.who, self.tenant, {**self.ids, **ids}, self.redaction, self.synced)

    def redacting(self, redaction: Redaction) -> Trail:
        return replace(self, redaction=redaction)

    def stamp(self, event: AuditEvent, **ids: str) -> Entry:
        """An event with the time when it happened, to be written together with something later."""
        attachments: dict[str, bytes] = {}
        unchanged = _WHEN_REDACTING if self.redaction.values else _UNCHANGED
        data = {
            name: value if type(value) in unchanged else self._plain(value, attachments)
            for name in _field_names(type(event))
            if (value := getattr(event, name)) is not None
        }
        own = {**self.ids, **ids} if ids else self.ids
        return Entry(timestamp(time.time()), event.kind, self.who, self.tenant, own, data, attachments)

    async def write(self, *events: AuditEvent | Entry) -> None:
        """All of them or none; AuditError when they cannot be written. Returns when they cannot be lost any more."""
        log = self.log
        if log is None or not events:
            return
        await self.append(*events)
        if log.may_need_checkpoint():
            with anyio.CancelScope(shield=True):  # the records are written, and are to be signed
                await anyio.to_thread.run_sync(log.checkpoint_if_due)

    async def defer(self, event: AuditEvent) -> None:
        """A `write` for what has no effect before the next record of this log: written together with that one.

        Whatever is written to the log later by this process, also by others, brings it along; `flush` does too.
        """
        if self.log is not None and not self.log.defer(entries := [self.stamp(event)]):
            await self.write(*entries)

    async def flush(self) -> None:
        """Writes what was deferred and is not written yet."""
        if self.log is not None and self.log.has_deferred:
            await self.append()

    async def append(self, *events: AuditEvent | Entry) -> None:
        """A `write` that leaves it to the caller to sign what is due."""
        log = self.log
        if log is None:
            return
        entries = self._entries(events)
        try:
            log.append(entries)
        except BusyError:
            await _append_patiently(log, entries)
        if self.synced:
            await anyio.to_thread.run_sync(log.sync)

    def write_blocking(self, *events: AuditEvent | Entry) -> None:
        """A blocking `write`, for a thread that may block."""
        log = self.log
        if log is None or not events:
            return
        entries = self._entries(events)
        patiently(log.path, lambda: log.append(entries))
        if self.synced:
            log.sync()
        log.checkpoint_if_due()

    def _entries(self, events: Sequence[AuditEvent | Entry]) -> list[Entry]:
        return [event if isinstance(event, Entry) else self.stamp(event) for event in events]

    def _plain(self, value: object, attachments: dict[str, bytes]) -> object:
        match value:
            case str():
                return self.redaction.text(value)
            case bool() | int() | None:
                return value
            case Digest():
                return {"sha256": value.sha256, "size": value.size}
            case Attachment():
                kept, whole = self.redaction.data(value.data), Digest.of(value.data)
                stored = whole.sha256 if kept == value.data else Digest.of(kept).sha256
                attachments[stored] = kept
                return {"sha256": whole.sha256, "size": whole.size, "stored": stored}
            case Mapping():
                items = cast("Mapping[str, object]", value).items()
                _check_names(dict(items))
                return {self.redaction.text(key): self._plain(item, attachments) for key, item in items}
            case tuple() | list():
                return [self._plain(item, attachments) for item in cast("tuple[object, ...]", value)]
            case _:
                raise TypeError(f"an audit event cannot hold {type(value).__name__}: {value!r}")


OFF = Trail()


@cache
def _field_names(kind: type[AuditEvent]) -> tuple[str, ...]:
    names = tuple(each.name for each in fields(kind))
    _check_names(names)
    return names


def _check_names(names: Iterable[str]) -> None:
    """By this name a record says what is attached to it, and verification looks for that."""
    if "stored" in names:
        raise TypeError("an audit event cannot have a field or a key 'stored', which is that of attachments; rename it")


async def _append_patiently(log: AuditLog, entries: list[Entry]) -> None:
    """The event loop goes on while another process is writing."""
    patience = Patience(log.path)
    while True:
        await anyio.sleep(patience.next_pause())
        try:
            log.append(entries)
            return
        except BusyError:
            continue
