"""Server processes that use one database: which of them live, and what becomes of what a dead one had open.

Each says from time to time in the database that it lives, and holds a lock on a file in its state folder that has its
name. The kernel releases that when the process ends, however it ends, so that the next server of the folder need not
wait until it is missed. A lock counts on the machine, and since the start of it, that made it: a folder may be shared
by machines whose kernels do not know each other's locks.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from fumehood.host.locks import lock_exclusive, try_exclusive
from fumehood.server import events
from fumehood.server.chains import AuditChains
from fumehood.server.sandboxes.lost_records import end_lost
from fumehood.server.sandboxes.records import list_lost, lose_all
from fumehood.server.storage.database import EVERYTHING, Database

BEAT_SECONDS = 10.0
DEAD_SECONDS = 60.0
_KEPT_SECONDS = 86400.0
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_TURN = "turn.lock"


def new_instance() -> str:
    return f"srv_{secrets.token_hex(8)}"


async def register_instance(database: Database, instance: str) -> None:
    now = time.time()
    async with database.transaction(EVERYTHING) as transaction:
        await transaction.execute("INSERT INTO instances (instance, started, seen) VALUES (?,?,?)", instance, now, now)


async def beat(database: Database, instance: str) -> bool:
    """False if others hold this instance for dead: its sandboxes are lost, and it must not go on with them."""
    async with database.transaction(EVERYTHING) as transaction:
        statement = "UPDATE instances SET seen = ? WHERE instance = ? AND ended IS NULL"
        return bool(await transaction.execute(statement, time.time(), instance))


async def end_instance(database: Database, instance: str) -> None:
    """With all that it had open, in one step: an instance that has ended is not looked at again."""
    async with database.transaction(EVERYTHING) as transaction:
        statement = "UPDATE instances SET ended = ? WHERE instance = ? AND ended IS NULL"
        await transaction.execute(statement, time.time(), instance)
        await lose_all(transaction, instance)


async def bury_dead(database: Database, instance: str, *, alone: bool, ended: Collection[str] = ()) -> list[str]:
    """Ends instances that have not been seen for long, and what they had open. Returns which.

    `alone` is for a database that only one process can use: then every other instance is dead. Those of `ended` are
    known to be.
    """
    limit = time.time() + 1 if alone else time.time() - DEAD_SECONDS
    async with database.transaction(EVERYTHING) as transaction:
        await transaction.execute("DELETE FROM instances WHERE ended < ?", time.time() - _KEPT_SECONDS)
        rows = await transaction.rows(
            "SELECT instance, seen FROM instances WHERE ended IS NULL AND instance <> ?", instance
        )
    dead = [str(row["instance"]) for row in rows if float(row["seen"] or 0) < limit or row["instance"] in ended]
    for each in dead:
        await end_instance(database, each)
    return dead


async def living(database: Database) -> frozenset[str]:
    """Instances that have not ended, as far as is known."""
    async with database.transaction(EVERYTHING) as transaction:
        rows = await transaction.rows("SELECT instance FROM instances WHERE ended IS NULL")
    return frozenset(str(row["instance"]) for row in rows)


class InstanceLocks:
    def __init__(self, state: Path) -> None:
        self._folder = state / "instances"
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._boot = _BOOT.read_text().strip()

    @contextmanager
    def held(self, instance: str) -> Iterator[None]:
        """As long as this instance lives."""
        lock = lock_exclusive(self._folder / f"{instance}.{self._boot}")
        try:
            yield
        finally:
            lock.remove()
            lock.close()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """For what one server of the folder does at a time. Blocks."""
        lock = lock_exclusive(self._folder / _TURN)
        try:
            yield
        finally:
            lock.close()

    def names(self) -> frozenset[str]:
        """Instances that live, or are not known to have ended."""
        return frozenset(path.name.partition(".")[0] for path in self._folder.glob("srv_*"))

    def released(self) -> list[str]:
        """Instances whose processes, which were of this machine, have ended."""
        return [path.name.partition(".")[0] for path in self._free() if path.name.endswith(f".{self._boot}")]

    def forget_all_but(self, living: Collection[str]) -> None:
        """Once the database knows which of them have ended; whoever dies before that leaves them to the next."""
        for path in self._free():
            if path.name.partition(".")[0] not in living:
                path.unlink(missing_ok=True)

    def _free(self) -> Iterator[Path]:
        for path in self._folder.glob("srv_*"):
            lock = try_exclusive(path)
            if lock is not None:
                lock.close()
                yield path


class LostServers:
    """Servers of the same database that are gone: what they had open gets its end in the audit logs."""

    def __init__(
        self, database: Database, chains: AuditChains, locks: InstanceLocks, instance: str, *, is_shared: bool
    ) -> None:
        """`is_shared` if several servers can use the database at once."""
        self._database, self._chains, self._locks, self._instance = database, chains, locks, instance
        self._is_shared = is_shared
        self._ended: set[tuple[str, str]] = set()
        """Tenants and ids of lost sandboxes whose ends are in the logs."""

    async def settle(self) -> None:
        """Which server finds another dead does not matter: the one that has its records writes the ends."""
        released = await asyncio.to_thread(self._locks.released)
        buried = await bury_dead(self._database, self._instance, alone=not self._is_shared, ended=released)
        for dead in buried:
            await self._chains.own().write(events.InstanceBuried(dead))
        await asyncio.to_thread(self._locks.forget_all_but, await living(self._database))
        lost = await list_lost(self._database)
        self._ended &= {(tenant, each) for tenant, opened in lost.items() for each in opened}
        for tenant, opened in lost.items():
            await self._end(tenant, {each: time for each, time in opened.items() if (tenant, each) not in self._ended})

    async def _end(self, tenant: str, opened: dict[str, float]) -> None:
        if opened and self._chains.has_log_of(tenant):
            await asyncio.to_thread(self._write_ends, tenant, opened)
        self._ended |= {(tenant, each) for each in opened}

    def _write_ends(self, tenant: str, opened: dict[str, float]) -> None:
        with self._locks.turn():  # two servers of one folder would each write an end
            end_lost(self._chains.log_of(tenant), opened)
