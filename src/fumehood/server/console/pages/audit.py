"""Audit: records to be searched, each with whether it is verified; verify now, export."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import islice, takewhile

from starlette.responses import Response, StreamingResponse

from fumehood.audit.export import lines
from fumehood.audit.moments import moment
from fumehood.audit.records import Record
from fumehood.audit.store import Query
from fumehood.audit.words import Shown, summary
from fumehood.errors import UsageError
from fumehood.frozen import frozen
from fumehood.server.console.page_request import NoSuchPageError, PageRequest, record_number
from fumehood.server.console.routes import ConsoleRoute, PageModule
from fumehood.server.console.source import RecordReader
from fumehood.server.console.story import StoryTeller
from fumehood.server.console.verification_state import AT_ONCE_RECORDS, VerifiedLog
from fumehood.server.identity.principals import Scope

_SCOPES = (Scope.AUDIT,)
_ON_PAGE = 100
_FIELDS = ("text", "kind", "run", "sandbox", "status", "since", "until")


@frozen
class RecordRow:
    seq: int
    time: str
    kind: str
    words: str
    who: str
    run: str
    tone: str
    state: str

    @classmethod
    def of(cls, record: Record, verified: VerifiedLog | None) -> RecordRow:
        shown = Shown.of(record)
        tone, state = verified.state_of(record.seq) if verified else ("", "not verified yet")
        return cls(record.seq, record.time, shown.kind, summary(shown), shown.who, shown.run_id or "", tone, state)


async def show(page: PageRequest) -> Response:
    log = page.source.log
    head = await page.blocking(log.head)
    verified = page.source.verification.newest
    if head.seq <= AT_ONCE_RECORDS:
        verified = await page.source.verification.run(anew=False)
    asked = {name: page.query(name)[:200] for name in _FIELDS}
    before = page.query("before")
    found, problem = list[Record](), ""
    try:
        query = _query(asked)
        found = await page.blocking(lambda: _newest(log, query, record_number(before)))
    except UsageError as error:
        problem = f"{error}."
    await page.source.note_reading(page.principal, len(found[:_ON_PAGE]))
    return await page.page(
        "audit.html",
        rows=[RecordRow.of(record, verified) for record in found[:_ON_PAGE]],
        older=found[_ON_PAGE - 1].seq if len(found) > _ON_PAGE else 0,
        asked=asked,
        head=head,
        verified=verified,
        problem=problem,
    )


def _query(asked: dict[str, str]) -> Query:
    given = {name: value.strip() or None for name, value in asked.items()}
    return Query(
        text=given["text"],
        kind=given["kind"],
        run_id=given["run"],
        sandbox_id=given["sandbox"],
        status=given["status"],
        since=moment(given["since"], "Since") if given["since"] else None,
        until=moment(given["until"], "Until") if given["until"] else None,
        newest_first=True,
    )


def _newest(log: RecordReader, query: Query, before: int | None) -> list[Record]:
    found = (record for record in log.find(query) if before is None or record.seq < before)
    return list(islice(found, _ON_PAGE + 1))


async def show_record(page: PageRequest) -> Response:
    wanted = page.path("seq")
    number = record_number(wanted)
    if number is None:
        raise NoSuchPageError
    log = page.source.log
    record = await page.blocking(lambda: next(iter(log.find(Query(after=number - 1, limit=1))), None))
    if record is None or record.seq != number:
        raise NoSuchPageError
    teller = StoryTeller(log, await page.changeable_policies())
    step = await page.blocking(lambda: teller.step(record))
    if step.blocks:
        await page.viewed("record", wanted, step.who)
    verified = page.source.verification.newest
    row = RecordRow.of(record, verified)
    return await page.page(
        "record.html", step=step, row=row, body=record.body, hash=record.hash.hex(), is_run_page=False
    )


async def verify(page: PageRequest) -> Response:
    """What is true and not signed yet is signed, and verified again."""
    found = await page.source.verification.run(anew=True)
    if found.is_true and found.report.signed < found.report.last:
        await page.blocking(page.source.sign_all)
        await page.source.verification.run(anew=True)
    return page.go("/audit")


async def export(page: PageRequest) -> Response:
    """All records and what is attached to them, signed up to the last."""
    log = page.source.log
    end = await page.blocking(page.source.sign_all)
    await page.viewed("export", f"records 1 to {end}", None)
    headers = {"Content-Disposition": 'attachment; filename="audit.jsonl"'}
    return StreamingResponse(_pieces(page, log, end), media_type="application/x-ndjson", headers=headers)


async def _pieces(page: PageRequest, log: RecordReader, end: int) -> AsyncIterator[str]:
    """Read in the tenant's own threads: those that Starlette would read it in are everybody's."""
    records = takewhile(lambda record: record.seq <= end, log.find(Query()))
    written = lines(records, log.attachment)
    while piece := await page.blocking(lambda: "".join(islice(written, 64))):
        yield piece


MODULE = PageModule(
    (
        ConsoleRoute("/audit", show, _SCOPES, nav="Audit", key="l"),
        ConsoleRoute("/audit/records/{seq}", show_record, _SCOPES),
        ConsoleRoute("/audit/verify", verify, _SCOPES, "POST"),
        ConsoleRoute("/audit/export", export, _SCOPES, "POST"),
    ),
    {},
)
