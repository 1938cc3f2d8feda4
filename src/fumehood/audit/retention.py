"""Removal of old records, so that the rest can still be verified.

What is removed ends right before a checkpoint, which thereby becomes the first record: its signature vouches for all
that is gone. A record that is signed on its own has what was removed and the actor; a gap without one is tampering.
They are verified first: a change among them would otherwise be gone with them, and the rest would verify. With an
archive the removed records are kept as JSON lines, which verify on their own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

from fumehood.audit import checkpoints
from fumehood.audit.export import lines
from fumehood.audit.keys import write_durably
from fumehood.audit.log import AuditLog
from fumehood.audit.prunings import LogPruned
from fumehood.audit.records import Record
from fumehood.audit.store import Query
from fumehood.audit.trail import Trail
from fumehood.audit.verification import problems_in_words, verify
from fumehood.errors import AuditError, UsageError


async def prune(log: AuditLog, trail: Trail, *, before: str, archive: Path | None = None) -> int:
    """Remove records that are older than the last checkpoint before this time. How many that were."""
    query = Query(kind=checkpoints.KIND, until=before, newest_first=True, limit=1)
    border = next(log.find(query), None)
    oldest = next(log.find(Query(limit=1)), None)
    if border is None or oldest is None or border.seq <= oldest.seq:
        return 0
    log.check_own_checkpoint(border)
    _verify_removed(log, oldest, border)
    count = border.seq - oldest.seq
    kept = None if archive is None else _write_archive(log, border.seq, archive)
    # Recorded and signed before the removal: if it is interrupted, every missing record is accounted for.
    log.announce_pruning(trail.stamp(LogPruned(border.seq, count, kept)), border)
    log.checkpoint()
    return log.drop_before(border.seq)


def _verify_removed(log: AuditLog, oldest: Record, border: Record) -> None:
    """Raises AuditError: what was changed must not go away as if it had been pruned. Where it begins was looked at."""
    first, digests = checkpoints.of_record(oldest), dict[str, None]()

    def records() -> Iterator[Record]:
        for record in _until(log, border.seq):
            digests.update(dict.fromkeys(record.stored))
            yield record

    def attached() -> Iterator[tuple[str, bytes, None]]:
        yield from ((digest, data, None) for digest in digests if (data := log.attachment(digest)) is not None)

    # Attachments are asked for when all records were read.
    report = verify(records(), log.public_key(), kept=[first] if first else [], attachments=attached())
    if not report.ok:
        found = next(problems_in_words(report))
        raise AuditError(f"nothing was removed, since the log does not verify: {found}; see `hood audit verify`")


def _until(log: AuditLog, border: int) -> Iterator[Record]:
    return takewhile(lambda record: record.seq <= border, log.find(Query()))


def _write_archive(log: AuditLog, border: int, archive: Path) -> str:
    """Writes removed records and the checkpoint that signs them to an archive; returns its path."""
    try:
        write_durably(archive, (line.encode() for line in lines(_until(log, border), log.attachment)))
    except FileExistsError:
        raise UsageError(f"{archive} exists already; an archive never replaces anything") from None
    except OSError as error:
        archive.unlink(missing_ok=True)
        raise UsageError(f"the archive {archive} cannot be written: {error.strerror}; nothing was removed") from error
    return os.path.abspath(archive)
