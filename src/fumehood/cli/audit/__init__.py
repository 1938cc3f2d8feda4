"""`hood audit VERB`: what happened in sandboxes, and whether it is true."""

from __future__ import annotations

import argparse

from fumehood.cli.arguments import Parser
from fumehood.cli.audit import export, period_report, verification, view
from fumehood.cli.audit.choices import Arguments

_DETAILS = """\
The log is in $FUMEHOOD_AUDIT, else in the user's state folder. TIME is a date
or a moment (2026-01-31, 2026-01-31T09:30), or how long ago (90m, 2h, 30d).
"""


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="hood audit", description="What happened in sandboxes.", epilog=_DETAILS)
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    for part in (view, verification, export, period_report):
        part.add_verbs(verbs)
    for verb in verbs.choices.values():
        verb.add_argument("--log", metavar="DIR", help="the log's folder, if it is not the usual one")
    return parser


def execute(arguments: list[str]) -> int:
    chosen = build_parser().parse_args(arguments, namespace=Arguments())
    return chosen.act(chosen)
