"""`hood policy test`: the tests that policies carry, against what they say and, with `--live`, in a real sandbox.

suite     which files are meant; a file's tests -> outcomes (what the policy says: `fumehood.policy.decisions`)
live      the same attempts in a real sandbox; `probe` is the program that runs there
report    outcomes -> what people and CI systems read
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, get_args

from fumehood.errors import UsageError
from fumehood.policy import Policy

if TYPE_CHECKING:
    from fumehood.cli.arguments import Verbs
_DETAILS = """\
A folder is searched for YAML files that are policies: hood.yaml, and those with
`version: 1` and a section of a policy, or with tests. Hidden folders are left
out.

--live opens a sandbox for each policy and tries there what can be tried
without reaching any server, running a command that is allowed or waiting.

exit code: 0 when every test is as expected, 1 when one is not, 2 when a policy
could not be read or tried, or there was none.
"""


class Arguments(argparse.Namespace):
    paths: list[str]
    live: bool
    backend: str | None
    junit: str | None
    json: bool
    verbose: bool


def add_parser(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "test",
        help="run the tests that policies carry",
        description="Run the tests that policies carry.",
        epilog=_DETAILS,
    )
    add = parser.add_argument
    add("paths", nargs="*", metavar="PATH", help="files or folders (default: the current folder)")
    add("--live", action="store_true", help="try them in a real sandbox too")
    names = get_args(Policy.model_fields["backend"].annotation)
    add(
        "--backend",
        metavar="NAME",
        choices=names,
        help="where, instead of the policy's: native, docker, gvisor, microvm",
    )
    add("--junit", metavar="FILE", help="write the results as JUnit XML")
    add("--json", action="store_true", help="print the results as JSON")
    add("-v", "--verbose", action="store_true", help="name every test, and not only failures")
    parser.set_defaults(act=execute)


def execute(chosen: Arguments) -> int:
    from fumehood.cli.policy.tests import report
    from fumehood.cli.policy.tests.suite import examine, find_policies

    if chosen.backend is not None and not chosen.live:
        raise UsageError("--backend says where --live tries the tests; add --live")
    found = find_policies(chosen.paths or ["."])
    show = report.PolicyPrinter(is_verbose=chosen.verbose, is_silent=chosen.json)
    examinations = [show.file(examine(file, is_live=chosen.live, backend=chosen.backend)) for file in found.policies]
    summary = report.Summary(examinations, found.problems, is_live=chosen.live)
    if chosen.junit is not None:
        report.write_junit(chosen.junit, examinations, found.problems)
    summary.show(is_json=chosen.json)
    return summary.exit_code
