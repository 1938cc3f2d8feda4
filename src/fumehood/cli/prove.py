"""`hood prove`: tries every control of a policy on this host, writes a signed report, and verifies such reports."""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from fumehood.characters import cut, one_line
from fumehood.cli import exitcodes, overrides
from fumehood.cli.arguments import Parser
from fumehood.cli.commands import UncollectedImports
from fumehood.cli.output import GREEN, RED, YELLOW, paint, say
from fumehood.errors import UsageError

if TYPE_CHECKING:
    from fumehood.proof.report import ProofReport
    from fumehood.proof.trial import Observation

_DETAILS = """\
Each control of the policy's enforcement report is tried as an attack that must
fail and as a use that must work. Large limits are lowered for their trial, and
hosts that the policy names are not contacted; the report says so.

exit code: 0 when every control held, 1 when one did not, 3 when nothing broke
but not every control was tested, or an attack got through where the enforcement
report itself says "in part".
"""
_VERIFY = """\
The report must be signed with the key of your own log, or with --key, have all
trials that this version knows, and be about this host's kernel, version of
Fumehood and kind of user; with --policy, about that policy. --elsewhere leaves
the host out. An old report stays true of its time: --since asks for a newer one.

exit code: 0 when the report proves what it says, 1 when it does not, 3 when an
attack got through where the enforcement report itself says "in part".
"""
INCOMPLETE = 3
_COLOURS = {"held": GREEN, "broken": RED, "partial": YELLOW, "not tested": YELLOW}
_INDENT = 12


class ProveArguments(overrides.Arguments):
    act: Callable[[ProveArguments], int]
    out: str
    junit: str | None
    json: bool
    file: str
    key: str | None
    elsewhere: bool
    since: str | None


def build_parser() -> argparse.ArgumentParser:
    description = "Try every control of a policy on this host, and write a signed report."
    parser = Parser(prog="hood prove", description=description, epilog=_DETAILS)
    overrides.add_options(parser, variables=False)
    parser.add_argument("--out", default=".", metavar="DIR", help="where the report goes, as JSON and HTML (here)")
    parser.add_argument("--junit", metavar="FILE", help="also write it as JUnit's XML, for CI")
    parser.add_argument("--json", action="store_true", help="print the report as JSON instead of lines")
    parser.set_defaults(act=_prove)
    verbs = parser.add_subparsers(metavar="VERB", required=False)
    verify = verbs.add_parser("verify", help="check a report, offline", description="Check a report.", epilog=_VERIFY)
    verify.add_argument("file", metavar="FILE", help="the report, as JSON")
    verify.add_argument("--policy", metavar="FILE", help="that it must be about")
    verify.add_argument("--key", metavar="FILE", help="the public key of who made it, as `hood audit key` printed it")
    verify.add_argument("--elsewhere", action="store_true", help="it was made on another machine")
    verify.add_argument("--since", metavar="TIME", help="it must not be older than this, such as 30d")
    verify.set_defaults(act=_verify)
    return parser


def execute(arguments: list[str]) -> int:
    chosen = build_parser().parse_args(arguments, namespace=ProveArguments())
    return chosen.act(chosen)


def _prove(chosen: ProveArguments) -> int:
    with UncollectedImports():
        import anyio

        from fumehood.audit.log import AuditLog
        from fumehood.proof.carry_out import prove
    folder = Path(chosen.out)
    _require_folder("--out", chosen.out, folder)
    if chosen.junit is not None:
        _require_folder("--junit", chosen.junit, Path(chosen.junit).parent)
    log = AuditLog.default()
    if log is None:
        raise UsageError("a report is signed with the key of the audit log, and FUMEHOOD_AUDIT is off: unset it")
    policy = overrides.load_policy(chosen)
    progress = _silent if chosen.json else _print_observation
    report = anyio.run(lambda: prove(policy, progress=progress)).signed(log.signing_key())
    _write(report, folder, chosen)
    _record(report)
    print(report.to_json(), end="") if chosen.json else _print_total(report, folder)
    return {"held": 0, "broken": exitcodes.PROBLEM_FOUND}.get(report.verdict, INCOMPLETE)


def _require_folder(option: str, given: str, folder: Path) -> None:
    """Before the trials, not after a minute of them."""
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        what = "not" if option == "--out" else "not in"
        raise UsageError(f"{option} {given}: {what} a folder that you can write to")


def _write(report: ProofReport, folder: Path, chosen: ProveArguments) -> None:
    from fumehood.proof.junit import to_junit
    from fumehood.proof.page import to_html

    stem = file_stem(report)
    files = {folder / f"{stem}.json": report.to_json(), folder / f"{stem}.html": to_html(report)}
    if chosen.junit is not None:
        files[Path(chosen.junit)] = to_junit(report)
    for path, content in files.items():
        try:
            path.write_text(content, encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror}") from error


def file_stem(report: ProofReport) -> str:
    return f"proof-{report.policy_digest.removeprefix('sha256:')[:12]}-{report.host.backend}"


def _record(report: ProofReport) -> None:
    from fumehood.proof.report import ProofMade
    from fumehood.sandbox.audit.snapshots import store_trail

    digest = hashlib.sha256(report.to_json().encode()).hexdigest()
    store_trail().write_blocking(ProofMade(report.policy_digest, report.host.backend, report.verdict, digest))


def _silent(_: Observation) -> None:
    pass


def _print_observation(one: Observation) -> None:
    if one.result == "does not apply":  # the report says why
        return
    line = one_line(f"{one.control}, {one.kind}: {one.what}")
    print(
        f"{_column(one.result, _COLOURS[one.result])}{cut(line, _line_length()) if sys.stdout.isatty() else line}",
        flush=True,
    )
    if one.result != "held":
        print(f"{'':{_INDENT}}{one_line(one.seen)}")


def _column(word: str, colour: str) -> str:
    return paint(f"{word:{_INDENT}}", colour)


def _line_length() -> int:
    return max(40, shutil.get_terminal_size().columns - _INDENT)


def _print_total(report: ProofReport, folder: Path) -> None:
    for gap in report.gaps():
        print(f"{_column('not proved', YELLOW)}{one_line(gap)}")
    for control in report.partial_controls():
        print(f"{_column('in part', YELLOW)}{control}: enforced in part here, which a strict policy refuses")
    say(f"{report.verdict}: {_count(report)}; the report is {folder / file_stem(report)}.json and .html")


def _count(report: ProofReport) -> str:
    """What does not apply was not carried out, and is no part of what is proved."""
    apart = len(report.with_result("does not apply"))
    more = f", and {apart} more that {'does' if apart == 1 else 'do'} not apply here" if apart else ""
    return f"{len(report.observations) - apart} trials{more}"


def _verify(chosen: ProveArguments) -> int:
    from fumehood.audit import keys
    from fumehood.audit.log import AuditLog
    from fumehood.cli.audit.choices import moment
    from fumehood.policy import read_policy
    from fumehood.proof.host_facts import describe_host
    from fumehood.proof.report import read_report
    from fumehood.proof.verification import objections

    report = read_report(Path(chosen.file))
    if chosen.key is not None:
        public = keys.read_public(Path(chosen.key))
    elif (log := AuditLog.default()) is not None:
        public = log.public_key()
    else:
        raise UsageError("there is no key to check the signature with: give that of who made it with --key FILE")
    policy = read_policy(chosen.policy, "--policy") if chosen.policy is not None else None
    host = None if chosen.elsewhere else describe_host(report.host.backend)
    since = moment(chosen.since, "--since") if chosen.since is not None else None
    found = list(objections(report, public, host=host, policy=policy, since=since))
    for objection in found:
        print(f"{paint('refused', RED)}: {one_line(objection)}")
    if not found:
        image = f", image {report.image_digest}" if report.image_digest else ""
        about = f"policy {report.policy_digest}, {report.host.backend}{image}, {report.host.kernel}"
        print(f"{paint('proved', GREEN)}: {_count(report)}, at {report.made_at}; {one_line(about)}")
    for one in report.with_result("partial"):
        print(f"{paint('in part', YELLOW)}: {one_line(f'{one.control}: {one.what} {one.seen}')}")
    for entry in report.controls:
        if entry.partial:
            print(f"{paint('in part', YELLOW)}: {one_line(f'{entry.control}: {entry.mechanism}')}")
    return exitcodes.PROBLEM_FOUND if found else {"partial": INCOMPLETE}.get(report.verdict, 0)
