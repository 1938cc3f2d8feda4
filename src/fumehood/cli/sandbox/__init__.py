"""`hood sandbox ...`: sandboxes with a name, whose files stay between uses."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from fumehood.cli import overrides
from fumehood.cli.arguments import Parser, Verbs, split

_DETAILS = """\
A sandbox with a name is a workspace and a policy on disk; no process stays. It
has the policy that it was made with until `exec --policy` gives it another;
other options of `exec` and `shell`, such as --timeout, are for that use. What
a command changed is on disk before `exec` returns its exit code; a crash in
between leaves the state before. $FUMEHOOD_SANDBOXES is where they are kept,
$FUMEHOOD_SANDBOX_LIMITS how many (sandboxes=100,snapshots=1000,size=20G) and
how long unused (days=180) before `hood gc` removes them.
"""
_EXEC_USAGE = "hood sandbox exec [options] NAME ([--] COMMAND ... | -c CODE | --file FILE)"
_SHELL = """\
Open an interactive shell, or another command, in a named sandbox, as `hood
shell` does in a fresh one. What it leaves is kept when it ends. It has 12
hours, unless a timeout was chosen for the sandbox.
"""
_CP = """\
Copy a file or a folder into a named sandbox, or out of it. NAME:PATH is below
the workspace; NAME: is the workspace itself. Out of it goes what
`filesystem.outputs` of its policy names, to a place where nothing is yet.
"""
_FROM_HELP = "begin with a snapshot, by name or id, or with a tar: a path with `/` or `.tar`, or `-`"


class Arguments(overrides.Arguments):
    act: Callable[[Arguments], int]
    name: str
    names: list[str]
    words: list[str]
    code: str | None
    file: str | None
    language: str | None
    begin: str | None
    source: str
    target: str
    archive: str
    snapshot_name: str | None
    snapshots: bool
    snapshot: bool
    all: bool
    json: bool
    quiet: bool
    wait: bool


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="hood sandbox", description="Sandboxes whose files stay.", epilog=_DETAILS)
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    _add_create(verbs)
    _add_exec(verbs)
    _add_shell(verbs)
    for add in (_add_cp, _add_list, _add_show, _add_snapshot, _add_fork, _add_export, _add_import, _add_rm):
        add(verbs)
    return parser


def _add_create(verbs: Verbs) -> None:
    create = verbs.add_parser("create", help="make one", description="Make a sandbox with a name.")
    create.add_argument("name", metavar="NAME")
    create.add_argument("--from", dest="begin", metavar="SNAPSHOT|TAR", help=_FROM_HELP)
    overrides.add_options(create, variables=False)
    create.set_defaults(act=_call("changes", "create"))


def _add_exec(verbs: Verbs) -> None:
    execute = verbs.add_parser(
        "exec",
        usage=_EXEC_USAGE,
        help="run a command in one",
        description="Run a command, or code, in a named sandbox. Exit codes and signals are those of `hood run`.",
    )
    add = execute.add_argument
    add("name", metavar="NAME")
    add("words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    add("-c", dest="code", metavar="CODE", help="code instead of a command")
    add("--file", metavar="FILE", help="a program of the host's instead of a command; its arguments follow NAME")
    add("--language", metavar="NAME", help="of the code (default: by the suffix, else python)")
    _add_changes(execute)
    overrides.add_publish(execute)
    add("--json", action="store_true", help="print the result as JSON instead of the output")
    add("--quiet", action="store_true", help="say nothing about how the program ended and what it was denied")
    execute.set_defaults(act=_call("execution", "run"))


def _add_shell(verbs: Verbs) -> None:
    shell = verbs.add_parser(
        "shell",
        usage="hood sandbox shell [options] NAME [[--] COMMAND ...]",
        help="open a shell in one",
        description=_SHELL,
    )
    shell.add_argument("name", metavar="NAME")
    shell.add_argument("words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    _add_changes(shell)
    shell.set_defaults(act=_call("execution", "shell"))


def _add_cp(verbs: Verbs) -> None:
    copy = verbs.add_parser(
        "cp",
        usage="hood sandbox cp [--wait] PATH NAME:PATH | NAME:PATH PATH",
        help="copy files in and out",
        description=_CP,
    )
    copy.add_argument("source", metavar="SOURCE", help="a file or a folder, of the host's or as NAME:PATH")
    copy.add_argument("target", metavar="TARGET", help="where it goes; a folder that is there is one to put it into")
    copy.add_argument("--wait", action="store_true", help="wait while another process uses the sandbox")
    copy.set_defaults(act=_call("transfer", "copy"))


def _add_changes(verb: Parser) -> None:
    verb.add_argument("--policy", metavar="FILE", help="another policy, which the sandbox keeps from now on")
    overrides.add_changes(verb, limits="for this use")
    verb.add_argument("--wait", action="store_true", help="wait while another process uses the sandbox")


def _add_list(verbs: Verbs) -> None:
    listing = verbs.add_parser("list", aliases=["ls"], help="all of them", description="All sandboxes with a name.")
    listing.add_argument("--snapshots", action="store_true", help="the snapshots instead")
    listing.add_argument("--json", action="store_true", help="as JSON")
    listing.set_defaults(act=_call("listing", "list_all"))


def _add_show(verbs: Verbs) -> None:
    show = verbs.add_parser("show", help="one of them", description="What is known of a sandbox.")
    show.add_argument("name", metavar="NAME")
    show.add_argument("--json", action="store_true", help="as JSON, with its policy and its files")
    show.set_defaults(act=_call("listing", "show"))


def _add_snapshot(verbs: Verbs) -> None:
    snapshot = verbs.add_parser(
        "snapshot", help="keep the state as it is now", description="Keep the last state of a sandbox; prints its id."
    )
    snapshot.add_argument("name", metavar="NAME")
    snapshot.add_argument("snapshot_name", nargs="?", metavar="SNAPSHOT", help="a name for it")
    snapshot.set_defaults(act=_call("changes", "snapshot"))


def _add_fork(verbs: Verbs) -> None:
    fork = verbs.add_parser(
        "fork", help="make copies", description="Make copies, which share on disk what does not change."
    )
    fork.add_argument("name", metavar="NAME")
    fork.add_argument("names", nargs="+", metavar="NEW")
    fork.set_defaults(act=_call("changes", "fork"))


def _add_export(verbs: Verbs) -> None:
    export = verbs.add_parser(
        "export",
        help="write a tar",
        description="Write the files of a sandbox that `filesystem.outputs` of its policy names to a tar.",
    )
    export.add_argument("name", metavar="NAME")
    export.add_argument("archive", metavar="FILE", help="a new file; `-` is standard output")
    export.add_argument("--all", action="store_true", help="all files, whatever the policy lets out")
    export.set_defaults(act=_call("changes", "export"))


def _add_import(verbs: Verbs) -> None:
    description = "Make a sandbox of a tar. One with links or names that lead out, devices or set-uid bits is refused."
    reading = verbs.add_parser("import", help="read a tar", description=description)
    reading.add_argument("archive", metavar="FILE", help="a tar, also with gzip; `-` is standard input")
    reading.add_argument("name", metavar="NAME")
    overrides.add_options(reading, variables=False)
    reading.set_defaults(act=_call("changes", "read"))


def _add_rm(verbs: Verbs) -> None:
    remove = verbs.add_parser(
        "rm", help="remove some", description="Remove sandboxes. `hood gc` then removes files that nothing else needs."
    )
    remove.add_argument("names", nargs="+", metavar="NAME")
    remove.add_argument("--snapshot", action="store_true", help="snapshots instead, by name or id")
    remove.set_defaults(act=_call("changes", "remove"))


def _call(module: str, function: str) -> Callable[[Arguments], int]:
    """Imports what a verb needs when it is used."""

    def act(chosen: Arguments) -> int:
        from importlib import import_module

        return getattr(import_module(f"fumehood.cli.sandbox.{module}"), function)(chosen)

    return act


def execute(arguments: list[str]) -> int:
    ours, theirs = split(arguments)
    parser, name = build_parser(), ""
    if ours[:1] in (["exec"], ["shell"]) and len(ours) > 2 and not ours[1].startswith("-") and ours[2].startswith("-"):
        verb, name, *options = ours
        ours = [verb, *options, name]  # `exec NAME -c CODE`, as people write it
    chosen = parser.parse_args(ours, namespace=Arguments())
    if name and chosen.name != name:
        parser.error("a command after options stands behind `--`, such as `hood sandbox exec NAME -e A=1 -- ls -l`")
    if theirs:
        chosen.words = [*getattr(chosen, "words", []), *theirs]
    return chosen.act(chosen)
