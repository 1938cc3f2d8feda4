"""Named sandboxes while they are not open: made, forked, exported, imported and removed. All of it is recorded."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import anyio

from fumehood.audit.events import AuditEvent
from fumehood.errors import UsageError
from fumehood.host.locks import Lock
from fumehood.policy import Policy
from fumehood.policy.filesystem import Outputs
from fumehood.sandbox.archive import ArchiveWriter, WritableArchive, read_archive
from fumehood.sandbox.audit import AuditChoice
from fumehood.sandbox.audit.snapshots import (
    SandboxExported,
    SandboxRemoved,
    SnapshotMade,
    SnapshotRemoved,
    store_trail,
)
from fumehood.sandbox.files.workspace_copy import check_room
from fumehood.sandbox.workspace_state import created
from fumehood.snapshots import NamedSandbox, Snapshot, SnapshotManifest, SnapshotStore
from fumehood.snapshots.garbage import Collected, collect, make_room
from fumehood.snapshots.manifest import SnapshotEntry
from fumehood.snapshots.records import SnapshotRecord, checked_name
from fumehood.snapshots.store import StoreWriter

Fill = Callable[[StoreWriter], SnapshotManifest]
"""Writes the contents that a new sandbox begins with."""


class AnyNamedSandboxes(Protocol):
    """Named sandboxes while they are not open, here or at a server; the methods are those of `NamedSandboxes`."""

    def create_empty(self, name: str, policy: Policy) -> NamedSandbox: ...

    def create_from_snapshot(self, name: str, policy: Policy, wanted: str) -> NamedSandbox: ...

    def create_from_archive(
        self, name: str, policy: Policy, stream: io.BufferedReader, source: str
    ) -> NamedSandbox: ...

    def fork(self, name: str, copies: Sequence[str]) -> list[NamedSandbox]: ...

    def snapshot(self, name: str, snapshot_name: str | None) -> Snapshot: ...

    def export(
        self, name: str, target: str, write: Callable[[WritableArchive], None], *, everything: bool
    ) -> list[str]: ...

    def sandboxes(self) -> list[NamedSandbox]: ...

    def find(self, name: str) -> NamedSandbox: ...

    def entries(self, name: str) -> Sequence[SnapshotEntry]: ...

    def snapshots(self) -> list[SnapshotRecord]: ...

    def remove(self, name: str) -> None: ...

    def remove_snapshot(self, wanted: str) -> None: ...


class NamedSandboxes:
    """The user's named sandboxes, or a tenant's. Blocking: for command lines and worker threads."""

    def __init__(self, audit: AuditChoice = None, store: SnapshotStore | None = None) -> None:
        self.store = store or SnapshotStore.open_default()
        self._trail = store_trail(audit)

    def sandboxes(self) -> list[NamedSandbox]:
        return self.store.sandboxes()

    def snapshots(self) -> list[SnapshotRecord]:
        return self.store.snapshots()

    def find(self, name: str) -> NamedSandbox:
        return self.store.find(name)

    def entries(self, name: str) -> Sequence[SnapshotEntry]:
        """What is in its workspace."""
        return self.store.manifest(self.find(name).snapshot).entries

    def create_empty(self, name: str, policy: Policy) -> NamedSandbox:
        return self.create(name, policy, lambda writer: SnapshotManifest.of(()), "empty")

    def create(self, name: str, policy: Policy, fill: Fill, source: str) -> NamedSandbox:
        """Nothing is left of one that fails."""
        make_room(self.store)
        with self._new_names([name]), self.store.writing() as writer:
            manifest = fill(writer)
            check_room(manifest, policy)
            writer.commit(manifest)
            record = NamedSandbox.new(name, manifest, policy)
            self.store.create(record)
        self._record(created(record, source))
        return record

    def fork(self, name: str, copies: Sequence[str]) -> list[NamedSandbox]:
        """Copies of the last state that was saved, with the same policy. They share everything that is stored."""
        if len({*copies}) < len(copies):
            raise UsageError("two of the copies have the same name; give each a name of its own")
        with self._new_names(copies), self.store.writing():
            original = self.store.find(name)
            manifest, policy = self.store.manifest(original.snapshot), original.read_policy()
            records = [NamedSandbox.new(copy, manifest, policy) for copy in copies]
            for record in records:
                self.store.create(record)
        self._record(*(created(record, f"sandbox {name}") for record in records))
        return records

    def snapshot(self, name: str, snapshot_name: str | None) -> Snapshot:
        """Of the last state that was saved."""
        if snapshot_name is not None:
            checked_name(snapshot_name)
        with self.store.writing():
            manifest = self.store.manifest(self.store.find(name).snapshot)
            self.store.record_snapshot(SnapshotRecord.of(manifest, snapshot_name, name))
        made = Snapshot.of(manifest, snapshot_name)
        self._record(SnapshotMade(made.id, snapshot_name, made.files, made.size_bytes, 0))
        return made

    def create_from_snapshot(self, name: str, policy: Policy, wanted: str) -> NamedSandbox:
        def fill(writer: StoreWriter) -> SnapshotManifest:
            return self.store.manifest(self.store.find_snapshot(wanted).snapshot)

        return self.create(name, policy, fill, f"snapshot {wanted}")

    def create_from_archive(self, name: str, policy: Policy, stream: io.BufferedReader, source: str) -> NamedSandbox:
        return self.create(name, policy, lambda writer: read_archive(stream, writer, policy), f"archive {source}")

    def export(self, name: str, target: str, write: Callable[[ArchiveWriter], None], *, everything: bool) -> list[str]:
        """Calls `write` once it is recorded what leaves; returns links that are left out because they lead out.

        What leaves is what `filesystem.outputs` of its policy names, unless it is `everything`.
        """
        record = self.store.find(name)
        outputs = Outputs(record.read_policy().filesystem.outputs)
        manifest = self.store.manifest(record.snapshot)
        archive = ArchiveWriter(self.store, manifest, (lambda path: True) if everything else outputs.match)
        if not archive.entries and manifest.entries and not everything:
            raise UsageError(
                f"the policy of sandbox {name!r} lets nothing out that is there: filesystem.outputs names no file; "
                "--all exports everything"
            )
        digest = _Digest()
        archive.write(digest)
        files = sum(entry.kind == "file" for entry in archive.entries)
        self._record(SandboxExported(name, record.snapshot, target, files, digest.sha256(), everything))
        write(archive)
        return archive.skipped

    def remove(self, name: str) -> None:
        record = self.store.find(name)
        self.store.remove(name)
        self._record(SandboxRemoved(name, record.snapshot))

    def remove_snapshot(self, wanted: str) -> None:
        record = self.store.remove_snapshot(wanted)
        self._record(SnapshotRemoved(record.snapshot, record.name))

    def collect(self) -> Collected:
        """Removes what is too old, and contents that nothing needs."""
        found = collect(self.store)
        removed = [SandboxRemoved(each.name, each.snapshot) for each in found.sandboxes]
        self._record(*removed, *(SnapshotRemoved(each.snapshot, each.name) for each in found.snapshots))
        return found

    def _record(self, *events: AuditEvent) -> None:
        if self._trail.is_on and events:
            anyio.run(self._trail.write, *events)

    @contextmanager
    def _new_names(self, names: Sequence[str]) -> Iterator[None]:
        """The locks of names that do not exist yet; of those that still do not, nothing is left."""
        taken: list[tuple[str, Lock]] = []
        try:
            for name in names:
                lock = self.store.acquire(name, is_new=True)
                taken.append((name, lock))
                if self.store.has(name):
                    raise UsageError(f"there is a sandbox {name!r} already; choose another name, or remove it")
            yield
        finally:
            for name, lock in taken:
                self.store.abandon(name, lock)


class _Digest:
    """Where an archive is written to know its digest."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()

    def write(self, data: bytes, /) -> int:
        self._digest.update(data)
        return len(data)

    def sha256(self) -> str:
        return self._digest.hexdigest()
