"""`hood audit tail | show | search`: records, for people who read them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable

from fumehood.audit.reading import open_store
from fumehood.audit.records import Record
from fumehood.audit.sqlite import SqliteStore
from fumehood.audit.store import Query
from fumehood.cli.audit import words
from fumehood.cli.audit.choices import Arguments, Verbs, add_filters, place, query
from fumehood.cli.colours import BOLD, DIM, paint
from fumehood.cli.terminal import neutralise
from fumehood.errors import UsageError

_POLL_SECONDS = 0.25
_MOST_ATTACHED_LINES = 200


def add_verbs(verbs: Verbs) -> None:
    tail = verbs.add_parser("tail", help="the newest records", description="The newest records, the last one last.")
    tail.add_argument("-n", dest="count", type=int, default=20, metavar="N", help="how many (20)")
    tail.add_argument("-f", "--follow", action="store_true", help="and those to come, until you press Ctrl-C")
    tail.add_argument("--json", action="store_true", help="as JSON, one a line")
    tail.set_defaults(act=_tail)
    show = verbs.add_parser("show", help="the story of a run", description="All that is known of a run or a sandbox.")
    show.add_argument("id", metavar="RUN", help="the id of a run or a sandbox, or how it begins")
    show.add_argument("--json", action="store_true", help="as JSON, one record a line")
    show.set_defaults(act=_show)
    search = verbs.add_parser("search", help="find records", description="Records that meet all conditions.")
    search.add_argument("text", nargs="?", metavar="TEXT", help="anywhere in the record")
    add_filters(search)
    search.add_argument("--limit", type=int, default=100, metavar="N", help="at most the newest N (100)")
    search.add_argument("--json", action="store_true", help="as JSON, one a line")
    search.set_defaults(act=_search)


def _tail(chosen: Arguments) -> int:
    store = open_store(place(chosen))
    printer = _Printer(as_json=chosen.json)
    last = store.head().seq if chosen.count <= 0 else 0
    for record in _newest(store, Query(newest_first=True, limit=max(0, chosen.count))):
        printer.print(record)
        last = record.seq
    while chosen.follow:
        for record in store.find(Query(after=last)):
            printer.print(record)
            last = record.seq
        time.sleep(_POLL_SECONDS)
    return 0


def _search(chosen: Arguments) -> int:
    printer, count = _Printer(as_json=chosen.json), 0
    for record in _newest(open_store(place(chosen)), query(chosen, text=chosen.text, limit=chosen.limit)):
        printer.print(record)
        count += 1
    return 0 if count else 1


def _show(chosen: Arguments) -> int:
    store = open_store(place(chosen))
    records = _story(store, chosen.id)
    if chosen.json:
        printer = _Printer(as_json=True)
        for record in records:
            printer.print(record)
        return 0
    first = records[0].parse()
    title = (
        records[0].run_id if records[0].run_id and records[0].run_id.startswith(chosen.id) else records[0].sandbox_id
    )
    print(paint(f"{title}", BOLD) + f" on {words.day(records[0])}, by {neutralise(str(first.get('who', '?')))}")
    _print_context(store, records)
    for record in records:
        print(words.heading(record))
        for name, value in sorted(record.data.items()):
            print(f"    {name}: {neutralise(words.in_full(value))}")
            _print_attachment(store, words.attachment_of(value))
    return 0


def _story(store: SqliteStore, wanted: str) -> list[Record]:
    records = [*store.find(Query(run_id=wanted)), *store.find(Query(sandbox_id=wanted))]
    if records:
        return records
    found = {each.run_id or "" for each in store.find(Query(text=wanted)) if (each.run_id or "").startswith(wanted)}
    found |= {
        each.sandbox_id or "" for each in store.find(Query(text=wanted)) if (each.sandbox_id or "").startswith(wanted)
    }
    if len(found) == 1:
        return _story(store, found.pop())
    if found:
        raise UsageError(f"{len(found)} runs and sandboxes begin with {wanted!r}; write more of the id")
    raise UsageError(f"no run or sandbox {wanted!r} is in the log {store.path}; `hood audit search` finds them")


def _print_context(store: SqliteStore, records: list[Record]) -> None:
    """Of a run: the sandbox that it ran in, and under which policy."""
    sandbox = records[0].sandbox_id
    if sandbox is None or records[0].kind == "sandbox.opened":
        return
    for opened in store.find(Query(sandbox_id=sandbox, kind="sandbox.opened", limit=1)):
        print(paint(f"in {sandbox}: {neutralise(words.summary(opened))}", DIM))


def _print_attachment(store: SqliteStore, digest: str | None) -> None:
    data = store.attachment(digest) if digest is not None else None
    if data is None:
        return
    lines = data.decode("utf-8", "backslashreplace").splitlines()
    for each in lines[:_MOST_ATTACHED_LINES]:
        print(paint("    | ", DIM) + neutralise(each))
    if len(lines) > _MOST_ATTACHED_LINES:
        print(paint(f"    | and {len(lines) - _MOST_ATTACHED_LINES} more lines", DIM))


def _newest(store: SqliteStore, wanted: Query) -> Iterable[Record]:
    return reversed(list(store.find(wanted)))


class _Printer:
    """A line for each record, and one for each new day."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._day = ""

    def print(self, record: Record) -> None:
        if self._as_json:
            print(json.dumps({"hash": record.hash.hex(), "record": record.parse()}), flush=True)
            return
        if words.day(record) != self._day:
            self._day = words.day(record)
            print(paint(self._day, DIM))
        print(words.line(record), flush=True)
