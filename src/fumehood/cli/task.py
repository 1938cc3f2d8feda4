"""The task of `hood run`: the policy that was chosen, the run under it, and what is said about it afterwards."""

from __future__ import annotations

import fcntl
import json
import os
import signal
from dataclasses import replace
from typing import TYPE_CHECKING

from fumehood.backends.native.prestart import Prestart
from fumehood.backends.selection import use_prestart
from fumehood.cli import exitcodes, overrides, policy_choice
from fumehood.cli.artifacts import ArtifactSaver, artifact_folder, check_folder, folder_of, is_notebook_file
from fumehood.cli.interruption import Interruption, StoppedBySignalError
from fumehood.cli.output import say
from fumehood.cli.program import ProgramSource, read_program
from fumehood.cli.run import Arguments, load_policy, parse
from fumehood.cli.runner import Inputs, Job, run_live, run_notebook, run_silently
from fumehood.errors import UsageError
from fumehood.frozen import frozen
from fumehood.policy import Policy
from fumehood.results import Cause, RunResult
from fumehood.sandbox.request import RunOptions

if TYPE_CHECKING:
    from fumehood.cli.notebook import Notebook


@frozen
class Task:
    """What the command line and the policy ask for. Nothing has been written yet, and no standard stream been read."""

    chosen: Arguments
    words: list[str]
    """The program's arguments."""
    policy: Policy


def read_task(arguments: list[str]) -> Task:
    chosen, words = parse(arguments)
    return Task(chosen, words, load_policy(chosen))


def perform(task: Task, prestart: Prestart, interruption: Interruption) -> int:
    chosen = task.chosen
    program = read_program(chosen.file, chosen.code, chosen.language, chosen.project)
    policy = _with_header(task, program)
    notebook = _open_notebook(task, program)
    if notebook:
        program = replace(program, code=notebook.code)
    check_folder(folder_of(chosen.out), may_hold_files=chosen.overwrite or is_notebook_file(chosen.out))
    if not chosen.quiet:
        policy_choice.tell(chosen)
    use_prestart(policy, prestart)
    job = _make_job(task, policy, program, is_session=chosen.session or notebook is not None)
    try:
        if notebook:
            result = run_notebook(job, notebook, interruption, is_silent=chosen.json)
            notebook.save(chosen.out, program.name or "", quiet=chosen.quiet, overwrite=chosen.overwrite)
        else:
            result = (run_silently if chosen.json else run_live)(job, interruption)
        if chosen.json:
            print(json.dumps(result.to_dict()))
    except StoppedBySignalError as error:
        if not chosen.quiet:
            say(str(error))
        return exitcodes.for_signal(error.signal)
    if chosen.learn:
        _print_lesson(policy, result)
    if not chosen.quiet and not chosen.json:
        explain_end(chosen, result, interruption.signal, is_lesson=chosen.learn)
    return exitcodes.for_result(result)


def _make_job(task: Task, policy: Policy, program: ProgramSource, *, is_session: bool) -> Job:
    chosen = task.chosen
    options: RunOptions = {"language": program.language}
    if not is_session:
        options |= {"args": task.words, "name": program.name, "stdin": own_stdin(is_taken=program.used_stdin)}
        options |= {"env": overrides.environment(chosen.env, os.environ)}
    if chosen.project is None:
        inputs = _modules(task, program)
    else:
        from fumehood.cli.project.copy import open_project

        inputs, options = open_project(chosen, policy, program, options)
    own = program.name if program.is_notebook else None
    saver = ArtifactSaver(artifact_folder(chosen.out), quiet=chosen.quiet, overwrite=chosen.overwrite, own=own)
    publish = tuple(dict.fromkeys(chosen.publish))
    return Job(policy, program.code, options, is_session, saver, chosen.learn, inputs, publish)


def _with_header(task: Task, program: ProgramSource) -> Policy:
    """The policy with the packages that the script's own header asks for."""
    if program.language != "python" or b"# /// script" not in program.code:
        return task.policy
    from fumehood.cli.script_header import with_header

    return with_header(task.policy, program.code, program.name or "the program", install=task.chosen.install)


def _open_notebook(task: Task, program: ProgramSource) -> Notebook | None:
    if program.is_notebook:
        from fumehood.cli.notebook import open_notebook

        return open_notebook(task, program)
    if is_notebook_file(task.chosen.out):
        raise UsageError(f"--out {task.chosen.out!r} is for notebooks; name a folder for other programs")
    return None


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


def own_stdin(*, is_taken: bool) -> int | None:
    """Our standard input for the program, unless its code was read from it, or nothing can be."""
    cannot_be_read = fcntl.fcntl(0, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY
    return None if is_taken or cannot_be_read or _is_job_in_background() else 0


def _is_job_in_background() -> bool:
    """As `hood run x.py &`: what is typed is for the shell, and the kernel would stop us for reading it."""
    try:
        return os.isatty(0) and os.tcgetpgrp(0) != os.getpgrp()
    except OSError:  # a terminal of another session
        return False


def _print_lesson(policy: Policy, result: RunResult) -> None:
    from fumehood.characters import neutralise
    from fumehood.policy.learned_rules import learn

    print(neutralise(learn(policy, result.denials).to_yaml()), end="")


def explain_end(
    chosen: overrides.Arguments, result: RunResult, stopped_by: int | None, *, is_lesson: bool = False
) -> None:
    """Prints what the program was refused and how it ended; a refusal that ended it is printed once."""
    told = () if is_lesson else result.denials
    overrides.tell_denials(chosen, told)
    if stopped_by and (result.cause is Cause.CANCELLED or result.signal == signal.Signals(stopped_by).name):
        say(str(StoppedBySignalError(stopped_by)))
    elif result.detail and not (told and result.cause is Cause.POLICY):
        say(f"{result.status} ({result.cause}): {overrides.name_flags(result.detail)}")
