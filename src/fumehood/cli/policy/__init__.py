"""`hood policy`: what policies say, before anything runs by them, and what can be written in them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable

from fumehood.characters import neutralise
from fumehood.cli import exitcodes
from fumehood.cli.arguments import Parser
from fumehood.cli.output import BOLD, GREEN, RED, YELLOW, paint
from fumehood.cli.policy import explanation, files, tests
from fumehood.errors import PolicyError
from fumehood.policy import Finding, Policy, describe
from fumehood.policy.named import file_of
from fumehood.policy.source import read_file

_CHECK_CODES = "exit code: 1 when a policy is invalid (with --strict: or has a finding), else 0."
_DIFF_CODES = "exit code: 0 when they allow the same, 1 when they do not, 2 when one cannot be read."


class Arguments(argparse.Namespace):
    act: Callable[[Arguments], int]
    files: list[str]
    file: str
    place: str | None
    old: str
    new: str
    strict: bool
    json: bool
    text: bool


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="hood policy", description="Check, show, compare or test policy files.")
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    check = verbs.add_parser(
        "check",
        help="validate files and name dangerous choices",
        description="Validate files and name dangerous choices.",
        epilog=_CHECK_CODES,
    )
    check.add_argument("files", nargs="+", metavar="FILE")
    check.add_argument("--strict", action="store_true", help="a finding is a failure")
    check.set_defaults(act=_check)
    show = verbs.add_parser("show", help="a policy in words", description="A policy in words, with its digest.")
    show.add_argument("file", metavar="FILE", help="or a name of `hood policy list`")
    show.add_argument("--text", action="store_true", help="print the file itself, with its comments")
    show.add_argument("--json", action="store_true", help="print it as JSON, with every default")
    show.set_defaults(act=_show)
    diff = verbs.add_parser(
        "diff",
        help="what changes from one policy to another",
        description="What changes when NEW takes the place of OLD.",
        epilog=_DIFF_CODES,
    )
    diff.add_argument("old", metavar="OLD")
    diff.add_argument("new", metavar="NEW")
    diff.set_defaults(act=_diff)
    reference = verbs.add_parser(
        "reference", help="every key, its default and its meaning", description="Every key of a policy file."
    )
    reference.set_defaults(act=_reference)
    schema = verbs.add_parser(
        "schema", help="a JSON schema, for editors", description="Print the JSON schema of policy files, for editors."
    )
    schema.set_defaults(act=_schema)
    tests.add_parser(verbs)
    explanation.add_parser(verbs)
    files.add_parsers(verbs)
    return parser


def execute(arguments: list[str]) -> int:
    chosen = build_parser().parse_args(arguments, namespace=Arguments())
    return chosen.act(chosen)


def _reference(chosen: Arguments) -> int:
    from fumehood.policy.reference import write_reference

    print(write_reference(), end="")
    return 0


def _schema(chosen: Arguments) -> int:
    from fumehood.policy.reference import json_schema

    print(json.dumps(json_schema(), indent=2))
    return 0


def _check(chosen: Arguments) -> int:
    failures = sum(not _is_acceptable(file, strict=chosen.strict) for file in chosen.files)
    return exitcodes.PROBLEM_FOUND if failures else 0


def _is_acceptable(file: str, *, strict: bool) -> bool:
    try:
        findings = Policy.load(file).lint()
    except PolicyError as error:
        for problem in error.problems:
            print(f"{paint('error', RED)}: {neutralise(problem)}")
        return False
    if not findings:
        print(f"{neutralise(file)}: {paint('ok', GREEN)}")
    for finding in findings:
        print(_in_words(finding, file))
    return not (findings and strict)


def _in_words(finding: Finding, file: str) -> str:
    level = paint(finding.level, RED if finding.level == "danger" else YELLOW)
    return f"{level}: {neutralise(f'{file}: {finding.key}: {finding.message}')}"


def _show(chosen: Arguments) -> int:
    file = file_of(chosen.file, "FILE")
    policy = Policy.load(file)
    if chosen.text:
        print(neutralise(read_file(file).decode("utf-8", "backslashreplace")), end="")
        return 0
    if chosen.json:
        print(json.dumps({"digest": policy.digest, "policy": policy.model_dump(mode="json")}))
        return 0
    for line in describe(policy):
        key, _, value = line.partition(": ")
        print(f"{paint(key, BOLD)}: {neutralise(value)}")
    print(f"{paint('digest', BOLD)}: {policy.digest}")
    return 0


def _diff(chosen: Arguments) -> int:
    changes = Policy.load(file_of(chosen.old, "OLD")).diff(Policy.load(file_of(chosen.new, "NEW")))
    for change in changes:
        print(neutralise(change))
    return exitcodes.PROBLEM_FOUND if changes else 0
