"""Garbage collection: removes what is too old, and what no record and no process needs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace

from fumehood.errors import DamagedSnapshotError
from fumehood.host import locks
from fumehood.snapshots.limits import DAY_SECONDS
from fumehood.snapshots.records import NamedSandbox, SnapshotRecord, now
from fumehood.snapshots.store import SnapshotStore

# Which part of the room is taken when little is left.
_FULL = 0.8


@dataclass(frozen=True, slots=True)
class Collected:
    sandboxes: tuple[NamedSandbox, ...] = ()
    snapshots: tuple[SnapshotRecord, ...] = ()
    """Those that were too old."""
    files: int = 0
    bytes: int = 0
    problem: str | None = None
    """Why contents were kept although it is not known whether they are needed."""


def collect(store: SnapshotStore) -> Collected:
    """Waits until nothing is being written."""
    with closing(locks.lock_exclusive(store.root / "lock")):
        sandboxes, snapshots = tuple(_remove_old_sandboxes(store)), tuple(_remove_old_snapshots(store))
        return replace(_remove_unneeded(store), sandboxes=sandboxes, snapshots=snapshots)


def make_room(store: SnapshotStore) -> None:
    """Before something is written, if little room is left: removes contents alone, and only if no other process writes.

    A caller that wants to save waits for no other. What is too old stays: `collect` removes that, and records it.
    """
    if store.size_bytes() <= store.limits.size_bytes * _FULL:
        return
    if lock := locks.try_exclusive(store.root / "lock"):
        with closing(lock):
            _remove_unneeded(store)


def _remove_unneeded(store: SnapshotStore) -> Collected:
    try:
        live = _live(store)
    except DamagedSnapshotError as error:
        # Whatever it names would be taken for garbage.
        return Collected(problem=str(error))
    files, size = _sweep(store, live)
    return Collected(files=files, bytes=size)


def _is_old(store: SnapshotStore, used: float) -> bool:
    return store.limits.days > 0 and now() - used > store.limits.days * DAY_SECONDS


def _remove_old_sandboxes(store: SnapshotStore) -> Iterator[NamedSandbox]:
    for record in store.sandboxes():
        if not _is_old(store, record.used):
            continue
        lock = locks.try_exclusive(store.path("locks", record.name))
        if lock:
            with closing(lock):
                store.path("sandboxes", record.name).unlink()
                lock.remove()
            yield record


def _remove_old_snapshots(store: SnapshotStore) -> Iterator[SnapshotRecord]:
    for record in store.snapshots():
        if _is_old(store, record.created):
            store.path("snapshots", record.key).unlink()
            yield record


def _live(store: SnapshotStore) -> dict[str, set[str]]:
    """Manifest -> contents, of everything that a record or a process needs."""
    wanted = {record.snapshot for record in (*store.sandboxes(), *store.snapshots())} | set(_leased(store))
    return {identifier: set(store.manifest(identifier).digests) for identifier in wanted}


def _leased(store: SnapshotStore) -> Iterator[str]:
    for entry in os.scandir(store.root / "leases"):
        path = store.root / "leases" / entry.name
        lock = locks.try_exclusive(path)
        if lock is None:
            yield entry.name.partition(".")[0]
            continue
        with closing(lock):  # its process is dead
            lock.remove()


def _sweep(store: SnapshotStore, live: dict[str, set[str]]) -> tuple[int, int]:
    contents = set[str]().union(*live.values())
    paths = [store.path("drafts", entry.name) for entry in os.scandir(store.root / "drafts")]
    paths += [store.path("manifests", e.name) for e in os.scandir(store.root / "manifests") if e.name not in live]
    paths += [store.blobs.path(digest) for digest, _ in store.blobs.digests() if digest not in contents]
    size = sum(path.lstat().st_size for path in paths)
    for path in paths:
        path.unlink()
    _remove_unused_locks(store)
    return len(paths), size


def _remove_unused_locks(store: SnapshotStore) -> None:
    for entry in os.scandir(store.root / "locks"):
        if store.has(entry.name):
            continue
        lock = locks.try_exclusive(store.path("locks", entry.name))
        if lock:
            with closing(lock):
                lock.remove()
