"""`hood policy explain`: what a policy says to one attempt, which rule decides, and what would change that."""

from __future__ import annotations

import argparse
import json
import shlex
from typing import TYPE_CHECKING, Any

from fumehood.characters import neutralise
from fumehood.cli import exitcodes
from fumehood.cli.output import BOLD, GREEN, RED, paint, wrapped

if TYPE_CHECKING:
    from argparse import _SubParsersAction  # pyright: ignore[reportPrivateUsage]  # what add_subparsers returns

    from fumehood.policy.decision import Decision
    from fumehood.policy.file import PolicyFile

_DETAILS = """\
attempts:
  connect api.github.com:443
  http GET https://api.github.com/repos/x
  read /etc/shadow              (relative paths start from the workspace)
  write out/report.csv
  command git push
  resource memory=1G

exit code: 0 when it is allowed, 1 when it is denied, 2 when the policy or the
attempt makes no sense.
"""
_LABELS = 8


class Arguments(argparse.Namespace):
    file: str
    attempt: list[str]
    json: bool


def add_parser(verbs: _SubParsersAction[Any]) -> None:
    parser = verbs.add_parser(
        "explain",
        help="which rule decides about an attempt",
        description="Say which rule of a policy decides about an attempt.",
        epilog=_DETAILS,
    )
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("attempt", nargs="+", metavar="ATTEMPT", help="in quotes, such as 'connect api.github.com:443'")
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")
    parser.set_defaults(act=execute)


def execute(chosen: Arguments) -> int:
    from fumehood.policy.decisions import Judge, parse_attempt
    from fumehood.policy.file import PolicyFile

    file = PolicyFile.load(chosen.file)
    attempt = parse_attempt(_joined(chosen.attempt))
    decision = Judge(file.policy).decide(attempt.kind, attempt.target)
    print(json.dumps(_data(decision, file)) if chosen.json else "\n".join(_lines(decision, file)))
    return 0 if decision.allowed else exitcodes.PROBLEM_FOUND


def _joined(words: list[str]) -> str:
    """The attempt as one text, or as words that the shell took apart."""
    if len(words) > 2 and words[0] == "command":
        return f"command {shlex.join(words[1:])}"
    return " ".join(words)


def _lines(decision: Decision[str], file: PolicyFile) -> list[str]:
    verdict = paint("allowed", GREEN) if decision.allowed else paint("denied", RED)
    lines = [f"{verdict}: {neutralise(decision.attempt)}", *_labelled("why", decision.reason)]
    lines += _labelled("rule", file.place_of(decision.rule) if decision.rule else "none; every sandbox is like that")
    if not decision.allowed:
        lines += _labelled("change", decision.fix or "none would allow it")
    return lines


def _labelled(label: str, text: str) -> list[str]:
    first, *rest = wrapped(text, indent=" " * (_LABELS + 2))
    return [f"  {paint(label, BOLD)}{' ' * (_LABELS - len(label))}{first.lstrip()}", *rest]


def _data(decision: Decision[str], file: PolicyFile) -> dict[str, object]:
    return {
        "attempt": decision.attempt,
        "verdict": decision.verdict,
        "why": decision.reason,
        "rule": decision.rule,
        "rule_line": file.line_of(decision.rule),
        "remedy": decision.fix,
    }
