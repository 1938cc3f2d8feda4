"""`hood audit report`: what happened in a period, as a page for people and as a table for spreadsheets."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from fumehood.audit.inspection import check, open_store
from fumehood.audit.verification import Report, problems_in_words
from fumehood.cli import exitcodes
from fumehood.cli.arguments import Verbs
from fumehood.cli.audit.choices import Arguments, place, query
from fumehood.cli.output import say
from fumehood.errors import UsageError

if TYPE_CHECKING:
    from fumehood.audit.period import Happening, Period

_DETAILS = """\
The whole log is verified, and the report says whether it is as it was written.

exit code: 0, or 1 when something in the log was changed.
"""
_COLUMNS = ("section", "time", "record", "who", "kind", "what", "count")
_DAY = ("sandboxes", "runs", "not successful", "denials", "approvals asked")
_STDOUT = "-"
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def add_verbs(verbs: Verbs) -> None:
    report = verbs.add_parser(
        "report",
        help="what happened in a period, as HTML and CSV",
        description="Runs, denials, approvals, changes of policies, and whether the log is true, for a period.",
        epilog=_DETAILS,
    )
    report.add_argument("--since", metavar="TIME", default="30d", help="not before this time (30d)")
    report.add_argument("--until", metavar="TIME", help="before this time (now)")
    report.add_argument(
        "--output", metavar="FILE", default="audit-report.html", help="the page (audit-report.html; - for stdout)"
    )
    report.add_argument("--csv", metavar="FILE", help="also the table (- for stdout)")
    report.set_defaults(act=_report, kind=None, run=None, sandbox=None, status=None)


def _report(chosen: Arguments) -> int:
    from fumehood.audit.period import summarise

    asked = query(chosen)
    if asked.since and asked.until and asked.until <= asked.since:
        raise UsageError(f"--until {chosen.until} is not after --since {chosen.since}: there is nothing between them")
    verified = check(place(chosen), None, [])
    with closing(open_store(place(chosen))) as store:
        period = summarise(store.find(asked))
    title = f"Audit report, {(asked.since or '')[:10]} to {(asked.until or 'now')[:10]}"
    output = chosen.output or ""
    _write(output, _page(title, period, verified))
    if chosen.csv is not None:
        _write(chosen.csv, _table(period))
    counts = f"{period.records} records, {sum(period.runs.values())} runs, {sum(period.denials.values())} denials"
    say(counts if output == _STDOUT else f"{counts}: {output}")
    return 0 if verified.ok else exitcodes.PROBLEM_FOUND


def _write(path: str, content: str) -> None:
    if path == _STDOUT:
        print(content, end="")
        return
    try:
        Path(path).write_text(content, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error


def _page(title: str, period: Period, verified: Report) -> str:
    from fumehood.printable import page, pairs, table, text

    state, word = ("held", "as they were written") if verified.ok else ("broken", "not all as they were written")
    problems = [text(problem) for problem in problems_in_words(verified)]
    runs = [(status, cause, count) for (status, cause), count in period.runs.most_common()]
    denials = [(kind, what, count) for (kind, what), count in period.denials.most_common()]
    policies = [
        (name or "unnamed", digest, _minute(period.first_uses[name, digest]), count)
        for (name, digest), count in period.policies.most_common()
    ]
    days = [(day, *(counts[name] for name in _DAY)) for day, counts in sorted(period.days.items())]
    facts = [
        ("log", verified.log),
        ("records of the period", f"{period.records} (numbers {period.first} to {period.last})"),
        ("records verified", f"{verified.records}, signed up to number {verified.signed}"),
        *_unsigned(verified),
        ("processor time of runs", f"{period.cpu_us / 1e6:.1f} s"),
        ("approvals", f"{period.asked} asked, {len(period.answers)} answered or expired"),
    ]
    parts = [
        f"<h1>{text(title)}</h1>",
        f'<p class="verdict {state}">The records of the log are {word}.</p>',
        "".join(f"<p>{problem}</p>" for problem in problems),
        pairs(facts),
        f"<h2>By day</h2>{table(('day', *_DAY), days)}",
        f"<h2>Runs</h2>{table(('status', 'cause', 'runs'), runs)}",
        f"<h2>Denials</h2>{table(('kind', 'what', 'count'), denials)}",
        f"<h2>Approvals</h2>{table(('time', 'record', 'who', 'kind', 'what'), map(_row, period.answers))}",
        f"<h2>Changes</h2>{table(('time', 'record', 'who', 'kind', 'what'), map(_row, period.changes))}",
        f"<h2>Policies</h2>{table(('name', 'digest', 'first used', 'sandboxes'), policies)}",
    ]
    return page(title, parts)


def _unsigned(verified: Report) -> Iterator[tuple[str, str]]:
    """What is in the chain alone could have been written anew by someone who can write to the folder."""
    if newer := verified.last - verified.signed:
        yield "not signed yet", f"the newest {newer}, until the next checkpoint (hood audit checkpoint makes one)"


def _row(one: Happening) -> tuple[str | int, ...]:
    return _minute(one.time), one.seq, one.who, one.kind, one.what


def _minute(time: str) -> str:
    return time[:19].replace("T", " ")


def _table(period: Period) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerow(_COLUMNS)
    writer.writerows([_harmless(cell) for cell in row] for row in _lines(period))
    return buffer.getvalue()


def _lines(period: Period) -> Iterator[tuple[str | int, ...]]:
    for day, counts in sorted(period.days.items()):
        yield from (("day", day, "", "", name, "", counts[name]) for name in _DAY)
    for (status, cause), count in sorted(period.runs.items()):
        yield "run", "", "", "", status, cause, count
    for (kind, what), count in sorted(period.denials.items()):
        yield "denial", "", "", "", kind, what, count
    for (name, digest), count in sorted(period.policies.items()):
        yield "policy", period.first_uses[name, digest], "", "", name, digest, count
    for section, happenings in (("approval", period.answers), ("change", period.changes)):
        yield from ((section, one.time, one.seq, one.who, one.kind, one.what, 1) for one in happenings)


def _harmless(cell: str | int) -> str | int:
    """A spreadsheet evaluates what begins like a formula, and some of the text is a program's."""
    from fumehood.characters import one_line

    if isinstance(cell, int):
        return cell
    line = one_line(cell)
    return f"'{line}" if line.startswith(_FORMULA) else line
