"""`hood audit verify | checkpoint | key`: whether the log is the one that was written, and what others need to tell."""

from __future__ import annotations

from pathlib import Path

from fumehood.audit import keys
from fumehood.audit.checkpoints import Checkpoint
from fumehood.audit.inspection import check, open_store
from fumehood.audit.log import AuditLog
from fumehood.audit.verification import MAX_PROBLEMS, Report, problems_in_words
from fumehood.audit.witness import read_witnessed
from fumehood.characters import one_line
from fumehood.cli import exitcodes
from fumehood.cli.arguments import Verbs
from fumehood.cli.audit.choices import Arguments, place
from fumehood.cli.output import DIM, GREEN, RED, YELLOW, paint
from fumehood.errors import UsageError

_VERIFY = """\
Without --key, the public key beside the log is used, which an attacker who
changed the log may have changed too; for an export, that of your own log. A
checkpoint that was kept elsewhere shows whether the log is an older copy of
itself.

A log's newest records are not signed yet: they follow each other, but may have
been changed; more of them than Fumehood ever leaves counts as a change. In an
export every record must be signed.

exit code: 0 when everything verifies, 1 when something does not.
"""


def add_verbs(verbs: Verbs) -> None:
    verify = verbs.add_parser(
        "verify",
        help="whether anything was changed",
        description="Name every record that was edited, removed, moved, inserted or cut off.",
        epilog=_VERIFY,
    )
    verify.add_argument("file", nargs="?", metavar="FILE", help="an export to verify instead of the log")
    verify.add_argument("--key", metavar="FILE", help="the public key, as `hood audit key` printed it")
    verify.add_argument(
        "--checkpoint", action="append", default=[], metavar="FILE", help="one kept elsewhere; can be given again"
    )
    verify.add_argument(
        "--fleet", metavar="LOG", help="of a worker: the tenant's log at the server, which has seen its checkpoints"
    )
    verify.set_defaults(act=_verify)
    checkpoint = verbs.add_parser(
        "checkpoint",
        help="sign what is there now",
        description="Sign all records up to now, and print the checkpoint, to be kept where it cannot be changed.",
    )
    checkpoint.set_defaults(act=_checkpoint)
    key = verbs.add_parser(
        "key", help="print the public key", description="Print the key that checkpoints verify with."
    )
    key.set_defaults(act=_key)


def _verify(chosen: Arguments) -> int:
    subject = Path(chosen.file) if chosen.file is not None else place(chosen)
    if chosen.file is not None and not Path(chosen.file).exists():
        raise UsageError(f"{chosen.file} does not exist")
    key, kept = Path(chosen.key) if chosen.key else None, [Path(each) for each in chosen.checkpoint]
    report = check(subject, key, kept)
    if chosen.fleet is not None:
        report = check(subject, key, kept, _witnessed(Path(chosen.fleet), report.log))
    for problem in problems_in_words(report):
        print(f"{paint('changed', RED)}: {one_line(problem)}")
    if len(report.problems) == MAX_PROBLEMS:
        print(f"and maybe more: only the first {MAX_PROBLEMS} are named")
    for note in report.notes:
        print(paint(f"note: {one_line(note)}", DIM))
    print(_total(report))
    return 0 if report.ok else exitcodes.PROBLEM_FOUND


def _witnessed(server: Path, log: str) -> list[Checkpoint]:
    """What the server has seen of this log. A log that it has never seen may be one that was made afterwards."""
    if not check(server, None).ok:
        raise UsageError(
            f"{server} does not verify itself, and is no witness; `hood audit verify --log {server}` says why"
        )
    found = read_witnessed(server, log)
    if not found:
        raise UsageError(
            f"{server} has seen no checkpoint of this log: it is another tenant's, or not the worker's own"
        )
    return found


def _total(report: Report) -> str:
    if not report.ok:
        span = _span(report.first, report.last) if report.records else "no records"
        return f"{span}: {paint('do not verify', RED)}"
    signed, unsigned = _span(report.first, report.signed), _span(max(report.first, report.signed + 1), report.last)
    told = [f"{signed}: {paint('as they were written', GREEN)}, signed"] if signed else []
    told += [f"{unsigned}: {paint('not signed yet', YELLOW)}, and can be changed until then"] if unsigned else []
    return "; ".join(told)


def _span(first: int, last: int) -> str:
    if last <= first:
        return f"record {last}" if last == first else ""
    return f"records {first} to {last}"


def _checkpoint(chosen: Arguments) -> int:
    print(_own_log(chosen).checkpoint().to_json())
    return 0


def _key(chosen: Arguments) -> int:
    folder = open_store(place(chosen)).path.parent
    print(keys.public_pem(keys.read_public(folder / keys.PUBLIC)).decode(), end="")
    return 0


def _own_log(chosen: Arguments) -> AuditLog:
    return AuditLog.at(open_store(place(chosen)).path.parent)
