"""The store of a user's snapshots and named sandboxes, safe from any number of threads, processes and crashes.

    blobs/      contents, by digest            snapshots/  snapshots that were asked for, by name or id
    manifests/  manifests, by digest           sandboxes/  named sandboxes
    leases/     snapshots that a process uses  locks/      of named sandboxes: one process at a time
    drafts/     what is not complete yet       lock        shared to write, exclusive to collect garbage
    commit      held by the writer whose contents become part of the store

A record is replaced at once, after everything that it needs was synced. So a crash leaves the old state or the new one,
and perhaps files that no record needs, which `collect` removes.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import Self, TypeVar

from pydantic import ValidationError

from fumehood.errors import DamagedSnapshotError, SandboxBusyError, UsageError
from fumehood.host import full_disk, locks
from fumehood.host.folders import PrivateFolder, user_folder
from fumehood.host.locks import Lock
from fumehood.snapshots.blobs import BlobBatch, BlobStore
from fumehood.snapshots.durability import remove_durably, write_durably
from fumehood.snapshots.limits import StoreLimits, charge
from fumehood.snapshots.manifest import SnapshotEntry, SnapshotManifest
from fumehood.snapshots.records import NamedSandbox, SnapshotRecord, checked_name
from fumehood.tenant import DiskLimits, Tenant

VARIABLE = "FUMEHOOD_SANDBOXES"
_FOLDER = PrivateFolder("snapshots and named sandboxes", VARIABLE)
_FOLDERS = ("blobs", "manifests", "snapshots", "sandboxes", "locks", "leases", "drafts")
_LEAST_ID_CHARACTERS = 6
Record = TypeVar("Record", NamedSandbox, SnapshotRecord)


def _wait_quietly() -> None:
    """For a caller that says nothing while it waits."""


class SnapshotLease:
    """A snapshot that stays while this process lives, or until `close`, although no record names it."""

    def __init__(self, path: Path, lock: Lock) -> None:
        self._path, self._lock = path, lock
        self._users = 1

    def share(self) -> Self:
        self._users += 1
        return self

    def close(self) -> None:
        self._users -= 1
        if self._users == 0:
            self._path.unlink(missing_ok=True)
            self._lock.close()


class StoreWriter:
    """New contents and a manifest of them; nothing is collected meanwhile. Use it in `with store.writing()`."""

    def __init__(self, store: SnapshotStore) -> None:
        self._store = store
        self.batch: BlobBatch = store.blobs.batch()

    def commit(self, manifest: SnapshotManifest) -> None:
        """All of it is on disk when this returns."""
        path = self._store.path("manifests", manifest.id)
        # One at a time: two that fit one by one may be too large together.
        with closing(locks.lock_exclusive(self._store.root / "commit")):
            is_new = not path.exists()
            if charged := self.batch.charged_bytes + (charge(len(manifest.data)) if is_new else 0):
                self._store.limits.check_size(self._store.size_bytes() + charged)
            self.batch.commit()
            if is_new:
                self._store.write(path, manifest.data)


class SnapshotStore:
    """Everything blocks: for worker threads and command lines."""

    def __init__(self, root: Path, limits: DiskLimits | None = None) -> None:
        _FOLDER.make(root)
        self.root = root
        self.limits: DiskLimits = limits or StoreLimits()
        for name in _FOLDERS:
            (root / name).mkdir(mode=0o700, exist_ok=True)
        self.blobs = BlobStore(root / "blobs", root / "drafts", self._check_room)

    @classmethod
    def open_default(cls, variables: Mapping[str, str] = os.environ) -> Self:
        """The user's own: $FUMEHOOD_SANDBOXES, else a folder of the user's state."""
        chosen = variables.get(VARIABLE)
        if chosen and not os.path.isabs(chosen):
            raise UsageError(f"{VARIABLE} {chosen!r} must be an absolute path")
        root = Path(chosen) if chosen else user_folder("state", variables, VARIABLE) / "sandboxes"
        return cls(root, StoreLimits.read(variables))

    @classmethod
    def open_for(cls, tenant: Tenant) -> Self:
        """The tenant's own, with its limits, else those of this process for each."""
        if tenant.folder is None:
            return cls.open_default()
        return cls(tenant.folder / "sandboxes", tenant.disk or StoreLimits.read(os.environ))

    def path(self, kind: str, name: str) -> Path:
        return self.root / kind / name

    def write(self, path: Path, data: bytes) -> None:
        write_durably(path, data, self.root / "drafts" / secrets.token_hex(16))

    def size_bytes(self) -> int:
        """Of contents and manifests, which programs inside have a say in; records are few and small."""
        total = self.blobs.charged_bytes()
        for entry in os.scandir(self.root / "manifests"):
            with suppress(FileNotFoundError):  # another process collects garbage
                total += charge(entry.stat().st_size)
        return total

    def _check_room(self) -> None:
        """While contents are written: what is not complete yet takes room too, of all writers together."""
        drafts = 0
        for entry in os.scandir(self.root / "drafts"):
            with suppress(FileNotFoundError):  # its writer is done with it
                drafts += entry.stat().st_size
        self.limits.check_size(self.size_bytes() + drafts)

    @contextmanager
    def writing(self) -> Iterator[StoreWriter]:
        with closing(locks.lock_shared(self.root / "lock")):
            writer = StoreWriter(self)
            try:
                with self.explaining_full_disk():
                    yield writer
            finally:
                writer.batch.discard()

    def explaining_full_disk(self) -> AbstractContextManager[None]:
        return full_disk.explained("saving files of sandboxes", self.root, VARIABLE)

    def manifest(self, identifier: str) -> SnapshotManifest:
        try:
            data = self.path("manifests", identifier).read_bytes()
        except FileNotFoundError:
            raise DamagedSnapshotError(identifier, "its manifest is gone") from None
        return SnapshotManifest.parse(data, identifier)

    def read(self, entry: SnapshotEntry, identifier: str) -> bytes:
        """A small content, checked."""
        from hashlib import sha256

        try:
            data = self.blobs.path(entry.sha256).read_bytes()
        except FileNotFoundError:
            raise damaged(entry, identifier, "is gone") from None
        if sha256(data).hexdigest() != entry.sha256:
            raise damaged(entry, identifier, "is not what was written")
        return data

    def lease(self, identifier: str) -> SnapshotLease:
        path = self.root / "leases" / f"{identifier}.{secrets.token_hex(8)}"
        lock = locks.try_exclusive(path)
        assert lock is not None, "a new name cannot be locked already"
        return SnapshotLease(path, lock)

    # Snapshots that were asked for.

    def record_snapshot(self, record: SnapshotRecord) -> None:
        """Inside `writing`, after its commit."""
        path = self.path("snapshots", record.key)
        if record.name is not None and path.exists():
            raise UsageError(f"there is a snapshot {record.name!r} already; choose another name, or remove it")
        if not path.exists():
            self.limits.check_snapshots(sum(1 for _ in os.scandir(path.parent)))
        self.write(path, record.model_dump_json().encode())

    def snapshots(self) -> list[SnapshotRecord]:
        """The newest first."""
        found = [_read(SnapshotRecord, path) for path in (self.root / "snapshots").iterdir()]
        return sorted(found, key=lambda record: record.created, reverse=True)

    def find_snapshot(self, wanted: str) -> SnapshotRecord:
        """By its name, its id, or the beginning of its id."""
        exact = self.path("snapshots", checked_name(wanted) if len(wanted) < 64 else _checked_id(wanted))
        if exact.exists():
            return _read(SnapshotRecord, exact)
        matching = [record for record in self.snapshots() if record.snapshot.startswith(wanted)]
        if len(wanted) >= _LEAST_ID_CHARACTERS and len({record.snapshot for record in matching}) == 1:
            return matching[0]
        raise UsageError(f"there is no snapshot {wanted!r}; `hood sandbox list --snapshots` has them all")

    def remove_snapshot(self, wanted: str) -> SnapshotRecord:
        record = self.find_snapshot(wanted)
        remove_durably(self.path("snapshots", record.key))
        return record

    # Named sandboxes.

    def acquire(
        self, name: str, *, wait: bool = False, heartbeat: Callable[[], None] = _wait_quietly, is_new: bool = False
    ) -> Lock:
        """The right to use a named sandbox; SandboxBusyError if another caller has it. It may not exist if `is_new`."""
        path = self.path("locks", checked_name(name))
        if not is_new and not path.exists():
            self.find(name)  # raises for a sandbox that does not exist, and leaves no lock behind

        def attempt() -> Lock | None:
            return locks.try_exclusive(path)

        lock = locks.wait_for(attempt, _wait_quietly, heartbeat) if wait else attempt()
        if lock is None:
            raise SandboxBusyError(name, locks.holder(path))
        return lock

    def create(self, record: NamedSandbox) -> None:
        """With its lock. The snapshot must be there."""
        if self.path("sandboxes", record.name).exists():
            raise UsageError(f"there is a sandbox {record.name!r} already; choose another name, or remove it")
        self.limits.check_sandboxes(sum(1 for _ in os.scandir(self.root / "sandboxes")))
        self.update(record)

    def update(self, record: NamedSandbox) -> None:
        """With its lock: the state that counts from now on."""
        self.write(self.path("sandboxes", record.name), record.model_dump_json().encode())

    def has(self, name: str) -> bool:
        return self.path("sandboxes", checked_name(name)).exists()

    def find(self, name: str) -> NamedSandbox:
        path = self.path("sandboxes", checked_name(name))
        if not path.exists():
            raise UsageError(
                f"there is no sandbox {name!r}; `hood sandbox list` has them all, `hood sandbox create {name}` makes it"
            )
        return _read(NamedSandbox, path)

    def sandboxes(self) -> list[NamedSandbox]:
        """By name."""
        return [_read(NamedSandbox, path) for path in sorted((self.root / "sandboxes").iterdir())]

    def remove(self, name: str) -> None:
        with closing(self.acquire(name)) as lock:
            self.find(name)
            remove_durably(self.path("sandboxes", name))
            lock.remove()

    def abandon(self, name: str, lock: Lock) -> None:
        """Closes the lock of a sandbox that was to be made and may not have been."""
        if not self.has(name):
            lock.remove()
        lock.close()


def damaged(entry: SnapshotEntry, identifier: str, what: str) -> DamagedSnapshotError:
    return DamagedSnapshotError(identifier, f"the content of {entry.path!r} {what}")


def _checked_id(wanted: str) -> str:
    if len(wanted) != 64 or set(wanted) - set("0123456789abcdef"):
        raise UsageError(f"{wanted[:80]!r} is neither the name nor the id of a snapshot")
    return wanted


def _read(kind: type[Record], path: Path) -> Record:
    try:
        return kind.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise DamagedSnapshotError(path.name, f"its record {path} cannot be read: {error}") from error
