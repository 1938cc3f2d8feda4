"""The task of `hood run`: the policy that was chosen, the run under it, and what is said about it afterwards."""

from __future__ import annotations

import fcntl
import json
import os
import signal

from fumehood.backends.native.prestart import Prestart
from fumehood.backends.selection import use_prestart
from fumehood.cli import exitcodes, overrides, policy_choice
from fumehood.cli.artifacts import ArtifactSaver, check_folder
from fumehood.cli.interruption import Interruption, StoppedBySignalError
from fumehood.cli.output import say
from fumehood.cli.program import ProgramSource, read_program
from fumehood.cli.run import Arguments, load_policy, parse
from fumehood.cli.runner import Job, run_live, run_silently
from fumehood.frozen import frozen
from fumehood.policy import Policy
from fumehood.results import Cause, RunResult
from fumehood.sandbox.request import RunOptions


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
    chosen, policy = task.chosen, task.policy
    program = read_program(chosen.file, chosen.code, chosen.language)
    check_folder(chosen.out, may_hold_files=chosen.overwrite)
    if not chosen.quiet:
        policy_choice.tell(chosen)
    use_prestart(policy, prestart)
    options: RunOptions = {"language": program.language}
    if not chosen.session:
        options |= {"args": task.words, "name": program.name, "stdin": _stdin(program)}
        options |= {"env": overrides.environment(chosen.env, os.environ)}
    job = Job(
        policy,
        program.code,
        options,
        chosen.session,
        ArtifactSaver(chosen.out, quiet=chosen.quiet, overwrite=chosen.overwrite),
        chosen.learn,
    )
    try:
        if chosen.json:
            result = run_silently(job, interruption)
            print(json.dumps(result.to_dict()))
        else:
            result = run_live(job, interruption)
    except StoppedBySignalError as error:
        if not chosen.quiet:
            say(str(error))
        return exitcodes.for_signal(error.signal)
    if chosen.learn:
        _print_lesson(policy, result)
    if not chosen.quiet and not chosen.json:
        _explain(chosen, result, interruption.signal)
    return exitcodes.for_result(result)


def _stdin(program: ProgramSource) -> int | None:
    if program.used_stdin or fcntl.fcntl(0, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY:
        return None
    return 0


def _print_lesson(policy: Policy, result: RunResult) -> None:
    from fumehood.characters import neutralise
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
