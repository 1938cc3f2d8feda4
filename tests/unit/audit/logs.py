"""Real logs for tests, in folders of their own."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fumehood.audit import Attachment, AuditEvent, AuditLog, Report, Trail
from fumehood.audit.inspection import check
from fumehood.audit.verification import problems_in_words


@dataclass(frozen=True, slots=True)
class Told(AuditEvent):
    kind = "test.told"

    text: str
    kept: Attachment | None = None


async def write(log: AuditLog, *texts: str, kept: bytes | None = None) -> None:
    trail = Trail(log, who="tester").within(sandbox="box_1", run="run_1")
    for text in texts:
        await trail.write(Told(text, None if kept is None else Attachment(kept)))


async def make_log(folder: Path) -> AuditLog:
    """Records 1 and 2 begin it, 11 is a checkpoint, 14 is the last; 5 has an attachment."""
    log = AuditLog.at(folder)
    await write(log, "three", "four")
    await write(log, "five", kept=b"attached to five")
    await write(log, "six", "seven", "eight", "nine", "ten")
    log.checkpoint()
    await write(log, "twelve", "thirteen", "fourteen")
    return log


@contextmanager
def editing(folder: Path) -> Iterator[sqlite3.Connection]:
    """As somebody edits it who has the file and knows SQLite."""
    connection = sqlite3.connect(folder / "audit.db", isolation_level=None)
    try:
        yield connection
    finally:
        connection.close()


def problems(report: Report) -> list[str]:
    return list(problems_in_words(report))


def verdict(folder: Path, *kept: Path) -> list[str]:
    return problems(check(folder, None, kept))
