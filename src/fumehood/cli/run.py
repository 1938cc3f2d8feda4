"""`hood run`: a program in a fresh sandbox, as if it ran here.

Owns the options. Imports nothing that reads policies or opens sandboxes before it knows that the command line is right
and has started the interpreter of the cell: `task` does the rest.
"""

from __future__ import annotations

import argparse
from functools import cache
from typing import TYPE_CHECKING

from fumehood.backends.languages import LANGUAGES
from fumehood.cli import overrides
from fumehood.cli.arguments import Parser, split
from fumehood.cli.commands import UncollectedImports
from fumehood.cli.program import check_program
from fumehood.remote.login import find_login

if TYPE_CHECKING:
    from fumehood.backends.native.prestart import Prestart
    from fumehood.policy import Policy

_USAGE = "hood run [options] (FILE | - | -c CODE) [--] [ARGS ...]"
_DETAILS = """\
exit code: the program's own, or
  124  it ran out of time
  137  it ran out of memory
  123  another limit ended it: output, disk, processes
  126  the policy denied it
  125  hood itself failed
  2    a mistake in the command or the policy
  130  Ctrl-C ended it (128 + the number of any signal)

Everything after FILE is the program's, options too: hood's own stand before
it. With -c, the program's arguments come after `--`; directly after FILE a
`--` may stand as well.
Output to a file or pipe is the program's, byte for byte. On a terminal
everything but text, line ends, tabs and colours is shown as harmless text.
The program reads standard input through hood; `< /dev/null` gives it none.
Ctrl-C and SIGTERM go to the program; a second one, or 3 seconds, kill it.
"""


class Arguments(overrides.Arguments):
    file: str | None
    words: list[str]
    code: str | None
    language: str | None
    session: bool
    out: str | None
    overwrite: bool
    json: bool
    quiet: bool
    learn: bool
    project: str | None
    sync_back: bool
    install: bool
    yes: bool


# Options of `docker run` and of uv, and what does that here.
_NO_PRIVILEGES = "nothing: programs have no privileges and no devices"
_ELSEWHERE = {
    "-p": "--publish PORT",
    "-m": "--memory SIZE",
    "--volume": "--mount SRC:DST",
    "--network": "--allow HOST",
    "--net": "--allow HOST",
    "--rm": "nothing: a sandbox is gone when its program ends",
    "--name": "`hood sandbox create NAME`",
    "-d": "`hood sandbox` or Sandbox.start in Python",
    **dict.fromkeys(("-it", "-ti", "-i", "-t"), "`hood shell`"),
    **dict.fromkeys(
        ("--package", "--packages", "--requirements", "-r"), "--with PACKAGE, or a policy with `environment`"
    ),
    **dict.fromkeys(("-u", "--user", "--privileged", "--cap-add", "--gpus", "--device"), _NO_PRIVILEGES),
    **dict.fromkeys(("-w", "--workdir"), "nothing: programs start in /workspace; --project DIR brings a folder along"),
    "--read-only": "nothing: only /workspace and /tmp can be written",
    "--entrypoint": "--language NAME",
    "--env-file": "-e K=V for each",
}


@cache
def build_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="hood run", usage=_USAGE, description="Run a program in a fresh sandbox.", epilog=_DETAILS)
    parser.unknown_option_advice = " (the program's own options come after FILE, or after `--`)"
    parser.elsewhere = _ELSEWHERE
    add = parser.add_argument
    add("file", nargs="?", metavar="FILE", help="the program; `-` reads it from standard input")
    # Whatever they look like: words that a model or a pattern of a shell chose must not open the sandbox.
    add("words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    add("-c", dest="code", metavar="CODE", help="the program itself")
    add("--language", metavar="NAME", help=f"{', '.join(LANGUAGES)} (default: by the suffix, else python)")
    overrides.add_options(parser)
    overrides.add_publish(parser)
    add("--install", action="store_true", help="install the packages that the script's own header (PEP 723) asks for")
    add("--session", action="store_true", help="show the last expression's value and figures (python only)")
    add("--out", metavar="DIR", help="save what filesystem.outputs names, and figures; all files if no policy is given")
    add("--overwrite", action="store_true", help="let --out replace files; without it the folder must be new or empty")
    add("--project", metavar="DIR", help="work on a copy of this folder, without .git, .venv and what is ignored")
    add("--sync-back", action="store_true", help="show what the program changed in the copy, and write it to DIR")
    add("--yes", action="store_true", help="let --sync-back write without asking")
    add("--json", action="store_true", help="print the result as JSON instead of the output")
    add("--quiet", action="store_true", help="say nothing about how the program ended and what it was denied")
    add(
        "--learn", action="store_true", help="let nothing out; print a policy for what was tried, output goes to stderr"
    )
    return parser


def execute(arguments: list[str]) -> int:
    chosen, words = parse(arguments)
    check_program(chosen.file, chosen.code, chosen.language, chosen.project)
    from fumehood.backends.native.prestart import early_interpreter

    with early_interpreter() as prestart:
        return _execute(chosen, words, prestart)


def _execute(chosen: Arguments, words: list[str], prestart: Prestart) -> int:
    with UncollectedImports():
        policy = load_policy(chosen)
        if not chosen.learn and not policy.approvals and find_login() is None:
            from fumehood.backends.selection import start_cell_early

            start_cell_early(policy, prestart)
        from fumehood.cli.interruption import Interruption
        from fumehood.cli.keeper.start import start_at_exit
        from fumehood.cli.task import Task, perform
    start_at_exit()
    return perform(Task(chosen, words, policy), prestart, Interruption())


def parse(arguments: list[str]) -> tuple[Arguments, list[str]]:
    """What was chosen, and the program's arguments."""
    parser = build_parser()
    ours, theirs = split(arguments)
    chosen = parser.parse_args(ours, namespace=Arguments())
    if chosen.file is None and chosen.code is None and theirs:
        chosen.file, *theirs = theirs
    elif chosen.words and len(ours) < len(arguments):
        theirs = ["--", *theirs]
    words = [*chosen.words, *theirs]
    if chosen.learn and chosen.json:
        parser.error("--learn prints a policy and --json a result; use one of them")
    if chosen.session and chosen.language not in (None, "python"):
        parser.error(f"a session runs python, not {chosen.language!r}; leave --session or --language out")
    if chosen.session and words:
        parser.error("a session has no arguments; leave --session or the arguments out")
    if chosen.yes and not chosen.sync_back:
        parser.error("--yes lets --sync-back write without asking; give that, too")
    if chosen.sync_back and chosen.project is None:
        parser.error("--sync-back writes to the folder of --project DIR; give that, too")
    return chosen, words


def load_policy(chosen: Arguments) -> Policy:
    from fumehood.cli.artifacts import is_notebook_file, let_out

    folder = None if is_notebook_file(chosen.out) else chosen.out
    policy = overrides.load_policy(chosen)  # which may find a file that the command line does not name
    policy = let_out(policy, folder, has_file=chosen.policy is not None)
    if not chosen.sync_back:
        return policy
    return let_out(policy, chosen.project, has_file=chosen.policy is not None, option="--sync-back")
