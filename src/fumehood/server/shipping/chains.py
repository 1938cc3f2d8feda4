"""The audit chains of this host, read from where a cursor is."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

from fumehood.audit.location import DATABASE
from fumehood.audit.records import Record
from fumehood.audit.sqlite import SqliteStore
from fumehood.audit.store import Query
from fumehood.frozen import frozen
from fumehood.policy.quantities import KIB
from fumehood.server.shipping.cursors import Position

_MOST_RECORDS = 200
_MOST_BYTES = 256 * KIB
_SERVER = "_server"
"""In the place of a tenant's name: no tenant can have it."""


@frozen
class Chain:
    tenant: str | None
    """None for that of the server itself."""
    path: Path

    @property
    def name(self) -> str:
        return self.tenant or _SERVER

    def fingerprint(self) -> tuple[int, ...]:
        """Other numbers when something was written."""
        found: list[int] = []
        for path in (self.path, self.path.with_name(f"{self.path.name}-wal")):
            with suppress(OSError):
                details = os.stat(path)
                found += [details.st_mtime_ns, details.st_size]
        return tuple(found)


@frozen
class RecordBatch:
    """Records of one chain that follow each other, and the name of that chain, which is random."""

    log: str
    tenant: str | None
    records: tuple[Record, ...]
    missed: int
    """How many records before these were removed from the log before they were sent."""
    behind: int
    """How many records come after these."""

    @property
    def end(self) -> Position:
        return Position(self.log, self.records[-1].seq)


def find_chains(state: Path, wants: Callable[[str | None], bool]) -> Iterator[Chain]:
    """Those that exist below the state folder of a server, also of tenants that were removed."""
    folders: list[tuple[str | None, Path]] = [(None, state / "audit")]
    with suppress(FileNotFoundError):
        folders += [(entry.name, entry / "audit") for entry in sorted((state / "tenants").iterdir())]
    for tenant, folder in folders:
        if wants(tenant) and (folder / DATABASE).exists():
            yield Chain(tenant, folder / DATABASE)


def read_batch(chain: Chain, after: Position | None) -> RecordBatch | None:
    """The next records of a chain, a bounded number of them; None if there are none.

    A log that took the place of another one is read from its beginning.
    """
    with closing(SqliteStore(chain.path, read_only=True)) as store:
        oldest = next(store.find(Query(limit=1)), None)
        if oldest is None:
            return None
        log = str(oldest.data.get("log"))
        seq = after.seq if after is not None and after.log == log else 0
        records = tuple(_bounded(store.find(Query(after=seq, limit=_MOST_RECORDS))))
        if not records:
            return None
        behind = store.head().seq - records[-1].seq
    return RecordBatch(log, chain.tenant, records, records[0].seq - seq - 1, behind)


def _bounded(records: Iterator[Record]) -> Iterator[Record]:
    """At least one, whatever its size."""
    size = 0
    for record in records:
        size += len(record.body)
        if size > _MOST_BYTES and size != len(record.body):
            return
        yield record
