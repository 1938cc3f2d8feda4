"""`hood policy explain`: what a policy says to one attempt, which rule decides, and what would change that.

With a key instead of a file: what the key takes, and what it does.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
from typing import TYPE_CHECKING

from fumehood.characters import neutralise
from fumehood.cli import exitcodes
from fumehood.cli.output import BOLD, GREEN, RED, paint, wrapped
from fumehood.errors import UsageError

if TYPE_CHECKING:
    from fumehood.cli.arguments import Verbs
    from fumehood.policy.decision import Decision
    from fumehood.policy.file import PolicyFile
    from fumehood.policy.reference import KeyEntry

_USAGE = "hood policy explain FILE ATTEMPT\n       hood policy explain KEY"
_DETAILS = """\
keys:
  resources.memory              what it takes, its default, what it does
  network.allow                 a list or a section with what is in it

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


def add_parser(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "explain",
        help="which rule decides about an attempt, or what a key does",
        usage=_USAGE,
        description="Say which rule of a policy decides about an attempt, or what a key does.",
        epilog=_DETAILS,
    )
    parser.add_argument("file", metavar="FILE | KEY")
    parser.add_argument("attempt", nargs="*", metavar="ATTEMPT", help="in quotes, such as 'connect api.github.com:443'")
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")
    parser.set_defaults(act=execute)


def execute(chosen: Arguments) -> int:
    return _explain_attempt(chosen) if chosen.attempt else _explain_key(chosen)


def _explain_attempt(chosen: Arguments) -> int:
    from fumehood.policy.decisions import Judge, parse_attempt
    from fumehood.policy.file import PolicyFile
    from fumehood.policy.named import file_of

    file = PolicyFile.load(file_of(chosen.file, "FILE"))
    attempt = parse_attempt(_joined(chosen.attempt))
    decision = Judge(file.policy).decide(attempt.kind, attempt.target)
    print(json.dumps(_data(decision, file)) if chosen.json else "\n".join(_lines(decision, file)))
    return 0 if decision.allowed else exitcodes.PROBLEM_FOUND


def _explain_key(chosen: Arguments) -> int:
    from fumehood.policy.reference import entries, find_entry

    if os.path.isfile(chosen.file):
        raise UsageError(f"which attempt? Such as: hood policy explain {chosen.file} 'connect api.github.com:443'")
    entry = find_entry(chosen.file)
    inner = list(entries(entry.inner, entry.prefix)) if entry.inner else []
    if chosen.json:
        print(json.dumps([_key_data(each) for each in (entry, *inner)]))
        return 0
    print(paint(entry.name, BOLD))
    for line in (*_key_lines(entry), *(line for each in inner for line in _inner_lines(each))):
        print(line)
    return 0


def _key_lines(entry: KeyEntry) -> list[str]:
    takes = f"{entry.kind}, with the keys below" if entry.inner else entry.kind
    default = entry.default or "none"
    return [
        *_labelled("takes", _bare(takes)),
        *_labelled("default", default),
        *_labelled("does", _bare(entry.description)),
    ]


def _inner_lines(entry: KeyEntry) -> list[str]:
    default = "" if entry.default in ("", "required") else "default "
    what = f"{entry.kind}; {default}{entry.default}" if entry.default else entry.kind
    return ["", f"{paint(entry.name, BOLD)} ({_bare(what)})", *wrapped(_bare(entry.description), indent="  ")]


def _bare(text: str) -> str:
    """Without the marks of the page, which a terminal does not render."""
    return text.replace("`", "")


def _key_data(entry: KeyEntry) -> dict[str, object]:
    return {"key": entry.name, "takes": entry.kind, "default": entry.default or None, "does": entry.description}


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
