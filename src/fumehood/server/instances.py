"""Server processes that use one database: each says from time to time that it lives. What a dead one had is lost."""

from __future__ import annotations

import secrets
import time
from collections.abc import Collection

from fumehood.server.sandboxes.records import lose_all
from fumehood.server.storage.database import EVERYTHING, Database

BEAT_SECONDS = 10.0
DEAD_SECONDS = 60.0
_KEPT_SECONDS = 86400.0


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
    await _end(database, instance)
    await lose_all(database, instance)


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


async def _end(database: Database, instance: str) -> None:
    async with database.transaction(EVERYTHING) as transaction:
        statement = "UPDATE instances SET ended = ? WHERE instance = ? AND ended IS NULL"
        await transaction.execute(statement, time.time(), instance)
