"""`hood audit tail | show | search`: records, for people who read them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable

from fumehood.audit.inspection import open_store
from fumehood.audit.records import Record
from fumehood.audit.sqlite import SqliteStore
from fumehood.audit.store import Query
from fumehood.audit.words import Shown, attachment_of, in_full, summary, text_lines
from fumehood.characters import one_line
from fumehood.cli.arguments import Verbs
from fumehood.cli.audit import lines
from fumehood.cli.audit.choices import Arguments, add_filters, place, query
from fumehood.cli.output import BOLD, DIM, paint, say
from fumehood.errors import UsageError

_LAST = "last"
_POLL_SECONDS = 0.25
_MOST_ATTACHED_LINES = 200


def add_verbs(verbs: Verbs) -> None:
    tail = verbs.add_parser("tail", help="the newest records", description="The newest records, the last one last.")
    tail.add_argument("-n", dest="count", type=int, default=20, metavar="N", help="how many (20)")
    tail.add_argument("-f", "--follow", action="store_true", help="and those to come, until you press Ctrl-C")
    tail.add_argument("--json", action="store_true", help="as JSON, one a line")
    tail.set_defaults(act=_tail)
    show = verbs.add_parser("show", help="the story of a run", description="All that is known of a run or a sandbox.")
    show.add_argument(
        "id", metavar="RUN", help="the id of a run or a sandbox, or how it begins; `last` is the newest run"
    )
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
        store.refuse_if_replaced()
        time.sleep(_POLL_SECONDS)
    return 0


def _search(chosen: Arguments) -> int:
    printer, count = _Printer(as_json=chosen.json), 0
    for record in _newest(open_store(place(chosen)), query(chosen, text=chosen.text, limit=chosen.limit)):
        printer.print(record)
        count += 1
    if not count:
        say("no record matches")
    return 0 if count else 1


def _show(chosen: Arguments) -> int:
    store = open_store(place(chosen))
    title, records = _story(store, chosen.id)
    if chosen.json:
        printer = _Printer(as_json=True)
        for record in records:
            printer.print(record)
        return 0
    shown = [Shown.of(record) for record in records]
    first = shown[0]
    print(f"{paint(one_line(title), BOLD)} on {first.day}, by {first.who}")
    _print_context(store, records[0])
    for record in shown:
        print(lines.heading(record))
        for name, value in sorted(record.data.items()):
            print(f"    {name}: {in_full(value)}")
            _print_attachment(store, attachment_of(value))
    return 0


def _story(store: SqliteStore, wanted: str) -> tuple[str, list[Record]]:
    """The id, and all records with it."""
    chosen = _newest_run(store) if wanted == _LAST else wanted
    records = [*store.find(Query(run_id=chosen)), *store.find(Query(sandbox_id=chosen))]
    if records:
        return chosen, records
    mentioned = [each for record in store.find(Query(text=chosen)) for each in (record.run_id, record.sandbox_id)]
    found = {each for each in mentioned if each is not None and each.startswith(chosen)}
    if len(found) == 1:
        return _story(store, found.pop())
    if found:
        raise UsageError(f"{len(found)} runs and sandboxes begin with {chosen!r}; write more of the id")
    raise UsageError(f"no run or sandbox {chosen!r} is in the log {store.path}; `hood audit search` finds them")


def _newest_run(store: SqliteStore) -> str:
    for record in store.find(Query(newest_first=True)):
        if record.run_id is not None:
            return record.run_id
    raise UsageError(f"no run is in the log {store.path} yet")


def _print_context(store: SqliteStore, first: Record) -> None:
    """Prints the sandbox that a run was in, and its policy."""
    if first.sandbox_id is None or first.kind == "sandbox.opened":
        return
    for opened in store.find(Query(sandbox_id=first.sandbox_id, kind="sandbox.opened", limit=1)):
        print(paint(f"in {one_line(first.sandbox_id)}: {summary(Shown.of(opened))}", DIM))


def _print_attachment(store: SqliteStore, digest: str | None) -> None:
    data = store.attachment(digest) if digest is not None else None
    if data is None:
        return
    shown = text_lines(data)
    for each in shown[:_MOST_ATTACHED_LINES]:
        print(paint("    | ", DIM) + each)
    if len(shown) > _MOST_ATTACHED_LINES:
        print(paint(f"    | and {len(shown) - _MOST_ATTACHED_LINES} more lines", DIM))


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
        shown = Shown.of(record)
        if shown.day != self._day:
            self._day = shown.day
            print(paint(self._day, DIM))
        print(lines.line(shown), flush=True)
