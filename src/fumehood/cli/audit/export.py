"""`hood audit export | prune`: records for other programs, and the end of old ones."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import anyio

from fumehood.audit.export import lines
from fumehood.audit.inspection import open_store
from fumehood.audit.log import AuditLog, current_user
from fumehood.audit.records import Record
from fumehood.audit.retention import prune
from fumehood.audit.sqlite import SqliteStore
from fumehood.audit.store import Query
from fumehood.audit.trail import Trail
from fumehood.cli.arguments import Verbs
from fumehood.cli.audit.choices import Arguments, add_filters, moment, place, query
from fumehood.cli.output import say
from fumehood.errors import AuditError, UsageError

_EXPORT = """\
A whole export is signed first, so that it can be verified: `hood audit verify
FILE --key KEY`. One with conditions cannot, since records are missing.

--otel sends a span for each run to the collector that the usual variables name
(OTEL_EXPORTER_OTLP_ENDPOINT and others); it needs `pip install 'fumehood[otel]'`.
"""
_PRUNE = """\
Removes whole stretches that end with a checkpoint, so that the rest still
verifies; a record says what was removed, and who did it.
"""


def add_verbs(verbs: Verbs) -> None:
    export = verbs.add_parser(
        "export", help="as JSON lines, or as spans", description="Records as JSON lines.", epilog=_EXPORT
    )
    add_filters(export)
    export.add_argument("--output", metavar="FILE", help="instead of standard output; must not exist yet")
    export.add_argument("--otel", action="store_true", help="as OpenTelemetry spans instead")
    export.set_defaults(act=_export)
    pruning = verbs.add_parser("prune", help="remove old records", description="Remove old records.", epilog=_PRUNE)
    pruning.add_argument("--older-than", required=True, metavar="TIME", help="a date, or an age such as 90d")
    pruning.add_argument("--archive", metavar="FILE", help="keep what is removed here, as JSON lines")
    pruning.set_defaults(act=_prune)


def _export(chosen: Arguments) -> int:
    store = open_store(place(chosen))
    wanted = query(chosen)
    records = store.find(wanted) if chosen.otel or wanted != Query() else _signed_records(store)
    if chosen.otel:
        from fumehood.audit.spans import send

        say(f"sent {send(records)} spans")
        return 0
    if chosen.output is None:
        sys.stdout.writelines(lines(records, store.attachment))
        return 0
    try:
        with open(chosen.output, "x", encoding="ascii") as file:
            file.writelines(lines(records, store.attachment))
    except FileExistsError:
        raise UsageError(f"{chosen.output} exists already; an export never replaces anything") from None
    return 0


def _signed_records(store: SqliteStore) -> Iterator[Record]:
    """The whole log up to a checkpoint, which is made if the newest record is none: only what is signed verifies."""
    try:
        end = AuditLog.at(store.path.parent).sign_all()
    except AuditError as error:
        say(f"the newest records are not signed, and will not verify: {error}")
        return store.find(Query())
    return takewhile(lambda record: record.seq <= end, store.find(Query()))


def _prune(chosen: Arguments) -> int:
    log = AuditLog.at(open_store(place(chosen)).path.parent)
    before = moment(chosen.older_than, "--older-than")
    archive = Path(chosen.archive) if chosen.archive is not None else None

    async def work() -> int:
        return await prune(log, Trail(log, who=current_user()), before=before, archive=archive)

    count = anyio.run(work)
    print(f"removed {count} records" if count else "nothing to remove: no checkpoint is that old")
    return 0
