"""`hood run`: a program in a fresh sandbox, as if it ran here."""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import signal
from dataclasses import dataclass, replace
from functools import cache

from fumehood.backends.languages import LANGUAGES
from fumehood.backends.native.prestart import Prestart
from fumehood.backends.selection import use_prestart
from fumehood.characters import neutralise
from fumehood.cli import exitcodes, overrides
from fumehood.cli.arguments import Parser, split
from fumehood.cli.artifacts import ArtifactSaver, check_folder, folder_of, is_notebook_file, let_out
from fumehood.cli.interruption import Interruption, StoppedBySignalError
from fumehood.cli.keeper.start import start_at_exit
from fumehood.cli.output import say
from fumehood.cli.program import ProgramSource, read_program
from fumehood.cli.runner import Inputs, Job, run_live, run_notebook, run_silently
from fumehood.errors import UsageError
from fumehood.policy import Policy
from fumehood.results import Cause, RunResult
from fumehood.sandbox.request import RunOptions

_USAGE = "hood run [options] (FILE | -c CODE | -) [ARGS] [-- ITS OPTIONS]"
_DETAILS = """\
exit code: the program's own, or
  124  it ran out of time
  137  it ran out of memory
  123  another limit ended it: output, disk, processes
  126  the policy denied it
  125  hood itself failed
  2    a mistake in the command or the policy
  130  Ctrl-C ended it (128 + the number of any signal)

Words after FILE are the program's arguments. Options are hood's wherever they
stand before `--`, and the program's after it.
Output to a file or pipe is the program's, byte for byte. On a terminal
everything but text, line ends, tabs and colours is shown as harmless text.
The program reads standard input through hood; `< /dev/null` gives it none.
Ctrl-C and SIGTERM go to the program; a second one, or 3 seconds, kill it.
"""


class Arguments(overrides.Arguments):
    file: str | None
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


@cache
def build_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="hood run", usage=_USAGE, description="Run a program in a fresh sandbox.", epilog=_DETAILS)
    parser.unknown_option_advice = " (the program's own options come after `--`)"
    add = parser.add_argument
    add("file", nargs="?", metavar="FILE", help="the program; `-` reads it from standard input")
    add("-c", dest="code", metavar="CODE", help="the program itself")
    add("--language", metavar="NAME", help=f"{', '.join(LANGUAGES)} (default: by the suffix, else python)")
    overrides.add_options(parser)
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


@dataclass(frozen=True, slots=True)
class Task:
    """What the command line and the policy ask for. Nothing has been written yet, and no standard stream been read."""

    chosen: Arguments
    words: list[str]
    """The program's arguments."""
    policy: Policy


def execute(arguments: list[str], prestart: Prestart) -> int:
    task = read_task(arguments)
    start_at_exit()
    return perform(task, prestart, Interruption())


def read_task(arguments: list[str]) -> Task:
    ours, theirs = split(arguments)
    parser = build_parser()
    chosen, words = parser.parse_known_args(ours, namespace=Arguments())
    if chosen.learn and chosen.json:
        parser.error("--learn prints a policy and --json a result; use one of them")
    if chosen.session and (words or theirs):
        parser.error("a session has no arguments; leave --session or the arguments out")
    if (chosen.sync_back and chosen.project is None) or (chosen.yes and not chosen.sync_back):
        parser.error("--yes is for --sync-back, and --sync-back for --project DIR")
    folder = None if is_notebook_file(chosen.out) else chosen.out
    policy = let_out(overrides.load_policy(chosen), folder, has_file=chosen.policy is not None)
    if chosen.sync_back:
        policy = let_out(policy, chosen.project, has_file=chosen.policy is not None, option="--sync-back")
    return Task(chosen, [*words, *theirs], policy)


def perform(task: Task, prestart: Prestart, interruption: Interruption) -> int:
    chosen, policy = task.chosen, task.policy
    program = read_program(chosen.file, chosen.code, chosen.language)
    if program.language == "python" and b"# /// script" in program.code:
        from fumehood.cli.script_header import with_header

        policy = with_header(policy, program.code, program.name or "the program", install=chosen.install)
    notebook = None
    if program.is_notebook:
        from fumehood.cli.notebook import open_notebook

        notebook = open_notebook(task, program)
        program = replace(program, code=notebook.code)
    elif is_notebook_file(chosen.out):
        raise UsageError(f"--out {chosen.out!r} is for notebooks; name a folder for other programs")
    check_folder(folder_of(chosen.out), may_hold_files=chosen.overwrite or is_notebook_file(chosen.out))
    use_prestart(policy, prestart)
    options: RunOptions = {"language": program.language}
    if not chosen.session and notebook is None:
        options |= {"args": task.words, "name": program.name, "stdin": _stdin(program)}
        options |= {"env": overrides.environment(chosen.env, os.environ)}
    if chosen.project is not None:
        from fumehood.cli.project.copy import open_project

        inputs, options = open_project(chosen, policy, program, options)
    else:
        inputs = _modules(task, program)
    job = Job(
        policy,
        program.code,
        options,
        chosen.session or notebook is not None,
        ArtifactSaver(
            None if is_notebook_file(chosen.out) else chosen.out, quiet=chosen.quiet, overwrite=chosen.overwrite
        ),
        chosen.learn,
        inputs,
    )
    try:
        if notebook:
            result = run_notebook(job, notebook, interruption, is_silent=chosen.json)
            notebook.save(chosen.out, program.name or "", quiet=chosen.quiet, overwrite=chosen.overwrite)
        elif chosen.json:
            result = run_silently(job, interruption)
        else:
            result = run_live(job, interruption)
        if chosen.json:
            print(json.dumps(result.to_dict()))
    except StoppedBySignalError as error:
        if not chosen.quiet:
            say(str(error))
        return exitcodes.for_signal(error.signal)
    if chosen.learn:
        _print_lesson(policy, result)
    if not chosen.quiet and not chosen.json:
        _explain(chosen, result, interruption.signal)
    return exitcodes.for_result(result)


def _modules(task: Task, program: ProgramSource) -> Inputs | None:
    """The modules beside a script, which belong to it."""
    file = task.chosen.file
    if program.language != "python" or file is None or program.used_stdin:
        return None
    from fumehood.cli.modules import find_modules

    found = find_modules(file, program.code, is_asked_for=bool(task.policy.approvals))
    for note in () if task.chosen.quiet else found.notes:
        say(note)
    return found if found.files else None


def _stdin(program: ProgramSource) -> int | None:
    if program.used_stdin or fcntl.fcntl(0, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY:
        return None
    return 0


def _print_lesson(policy: Policy, result: RunResult) -> None:
    from fumehood.policy.learned_rules import learn

    print(neutralise(learn(policy, result.denials).to_yaml()), end="")


def _explain(chosen: Arguments, result: RunResult, stopped_by: int | None) -> None:
    """Prints what the program was refused and how it ended; a refusal that ended it is printed once."""
    told = () if chosen.learn else result.denials
    overrides.tell_denials(chosen, told)
    if stopped_by and (result.cause is Cause.CANCELLED or result.signal == signal.Signals(stopped_by).name):
        say(str(StoppedBySignalError(stopped_by)))
    elif result.detail and not (told and result.cause is Cause.POLICY):
        say(f"{result.status} ({result.cause}): {overrides.name_flags(result.detail)}")
