"""`hood sandbox exec`: a run of `hood run`, in a sandbox with a name."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from fumehood.backends.native.prestart import early_interpreter
from fumehood.backends.selection import use_prestart
from fumehood.cli import exitcodes, overrides
from fumehood.cli.artifacts import ArtifactSaver
from fumehood.cli.interruption import Interruption, StoppedBySignalError
from fumehood.cli.output import say
from fumehood.cli.program import read_program
from fumehood.cli.runner import Job, run_live, run_silently
from fumehood.cli.task import explain_end, own_stdin
from fumehood.errors import UsageError
from fumehood.policy import Policy, read_policy
from fumehood.sandbox.request import RunOptions
from fumehood.snapshots import SnapshotStore

if TYPE_CHECKING:
    from fumehood.cli.sandbox import Arguments


def run(chosen: Arguments) -> int:
    with early_interpreter() as prestart:
        job = _make_job(chosen, _policy(chosen))
        use_prestart(job.policy, prestart)
        return _perform(chosen, job)


def _policy(chosen: Arguments) -> Policy:
    record = SnapshotStore.open_default().find(chosen.name)
    policy = record.read_policy() if chosen.policy is None else read_policy(chosen.policy, "--policy")
    if policy.approvals:
        raise UsageError("the policy asks for approvals, which `hood sandbox exec` does not ask for; use `hood run`")
    return policy


def _make_job(chosen: Arguments, policy: Policy) -> Job:
    options: RunOptions = {"env": overrides.environment(chosen.env, os.environ)}
    code, used_stdin = b"", False
    if chosen.code is None and chosen.file is None:
        if not chosen.words:
            raise UsageError("nothing to run: give a COMMAND, -c CODE or --file FILE")
        if chosen.language is not None:
            raise UsageError("--language is for -c CODE and --file FILE")
        options["argv"] = chosen.words
    else:
        program = read_program(chosen.file, chosen.code, chosen.language)
        if program.is_notebook:
            raise UsageError("a notebook runs in a sandbox of its own: `hood run`")
        code, used_stdin = program.code, program.used_stdin
        options |= {"language": program.language, "args": chosen.words, "name": program.name}
    options["stdin"] = own_stdin(is_taken=used_stdin)
    saver = ArtifactSaver(None, quiet=chosen.quiet)
    changes = chosen.policy is not None
    return Job(policy, code, options, False, saver, sandbox=chosen.name, waits=chosen.wait, changes_policy=changes)


def _perform(chosen: Arguments, job: Job) -> int:
    interruption = Interruption()
    try:
        result = (run_silently if chosen.json else run_live)(job, interruption)
    except StoppedBySignalError as error:
        if not chosen.quiet:
            say(f"{error}; the sandbox is as it was before")
        return exitcodes.for_signal(error.signal)
    if chosen.json:
        print(json.dumps(result.to_dict()))
    elif not chosen.quiet:
        explain_end(chosen, result, interruption.signal)
    return exitcodes.for_result(result)
