"""The tenant's own audit chain over HTTP: records, a signed checkpoint, and an export that `hood audit verify` reads.

Reading is recorded, too: in the server's own chain, which the tenant cannot read.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from itertools import islice, takewhile
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from fumehood.audit.export import lines
from fumehood.audit.keys import public_pem
from fumehood.audit.log import AuditLog
from fumehood.audit.records import Record
from fumehood.audit.store import Query as RecordQuery
from fumehood.server import events
from fumehood.server.api.problems import PlainJson
from fumehood.server.api.routes import Caller, Server, scoped
from fumehood.server.identity.principals import Scope

_MOST_RECORDS = 1000
Word = Annotated[str | None, Query(max_length=128, pattern=r"^[A-Za-z0-9._-]+$")]
router = APIRouter(prefix="/audit", tags=["audit"])


@router.get("/records", response_model=list[dict[str, object]], **scoped(Scope.AUDIT))
async def read_records(
    server: Server,
    caller: Caller,
    after: Annotated[int, Query(ge=0, le=2**53)] = 0,
    kind: Word = None,
    run_id: Word = None,
    sandbox_id: Word = None,
    limit: Annotated[int, Query(ge=1, le=_MOST_RECORDS)] = 100,
) -> Response:
    """Records in their order. For the next ones ask again, `after` the number of the last."""
    log = server.chains.log_of(caller.tenant)
    query = RecordQuery(after=after, kind=kind, run_id=run_id, sandbox_id=sandbox_id, limit=limit)
    records = await asyncio.to_thread(lambda: [record.parse() for record in log.find(query)])
    await server.chains.own(caller).write(events.RecordsRead("records", after, len(records)))
    return PlainJson(records)


@router.get("/checkpoint", response_model=dict[str, object], **scoped(Scope.AUDIT))
async def make_checkpoint(server: Server, caller: Caller) -> Response:
    """A signature over all records so far, to be kept elsewhere: with it a later change of any of them shows."""
    signed = await asyncio.to_thread(server.chains.log_of(caller.tenant).checkpoint)
    return PlainJson(json.loads(signed.to_json()))


@router.get("/export", response_class=Response, **scoped(Scope.AUDIT))
async def export_records(server: Server, caller: Caller) -> Response:
    """All records and what is attached to them, as lines of JSON, signed up to the last."""
    log = server.chains.log_of(caller.tenant)
    end = await asyncio.to_thread(log.sign_all)
    await server.chains.own(caller).write(events.RecordsRead("export", 0, end))
    return StreamingResponse(_pieces(log, end), media_type="application/x-ndjson")


@router.get("/key", response_class=PlainTextResponse, **scoped(Scope.AUDIT))
async def show_key(server: Server, caller: Caller) -> Response:
    """The public key that checkpoints and exports verify with; to be kept elsewhere."""
    public = await asyncio.to_thread(server.chains.log_of(caller.tenant).public_key)
    return PlainTextResponse(public_pem(public))


def _pieces(log: AuditLog, end: int) -> Iterator[str]:
    """Starlette reads it in a thread."""
    written = lines(_until(log, end), log.attachment)
    while piece := "".join(islice(written, 64)):
        yield piece


def _until(log: AuditLog, end: int) -> Iterator[Record]:
    return takewhile(lambda record: record.seq <= end, log.find(RecordQuery()))
