"""`hood sandbox exec` and `shell`: a run of `hood run`, or a shell of `hood shell`, in a sandbox with a name."""

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
from fumehood.cli.place import NamedSandboxUse, named_sandbox
from fumehood.cli.program import read_program
from fumehood.cli.runner import Job, run_live, run_silently
from fumehood.cli.shell import INTERACTIVE, check_terminal, converse
from fumehood.cli.task import explain_end, own_stdin
from fumehood.errors import UsageError
from fumehood.policy import Policy, read_policy
from fumehood.remote.place import named_sandboxes
from fumehood.sandbox.request import RunOptions

if TYPE_CHECKING:
    from fumehood.cli.sandbox import Arguments


def run(chosen: Arguments) -> int:
    with early_interpreter() as prestart:
        job = _make_job(chosen, *_choose(chosen))
        use_prestart(job.policy, prestart)
        return _perform(chosen, job)


def shell(chosen: Arguments) -> int:
    check_terminal()
    with early_interpreter() as prestart:
        policy, use = _choose(chosen, is_interactive=True)
        use_prestart(policy, prestart)
        return converse(named_sandbox(use, progress=say), chosen, chosen.words)


def _choose(chosen: Arguments, *, is_interactive: bool = False) -> tuple[Policy, NamedSandboxUse]:
    """The policy that holds for this use, and how the sandbox is opened with it."""
    record = named_sandboxes().find(chosen.name)
    base = record.read_policy() if chosen.policy is None else read_policy(chosen.policy, "--policy")
    policy = overrides.change(base, chosen)
    if is_interactive and policy.resources.timeout == Policy().resources.timeout and chosen.timeout is None:
        policy = policy.override({"resources": INTERACTIVE})  # no time was chosen for this sandbox
    if policy.approvals:
        raise UsageError("the policy asks for approvals, which `hood sandbox` does not ask for; use `hood run`")
    if chosen.policy is None and policy.digest == record.policy_digest:
        return policy, NamedSandboxUse(chosen.name, wait=chosen.wait)
    return policy, NamedSandboxUse(chosen.name, policy, once=chosen.policy is None, wait=chosen.wait)


def _make_job(chosen: Arguments, policy: Policy, use: NamedSandboxUse) -> Job:
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
    return Job(
        policy,
        code,
        options,
        False,
        ArtifactSaver(None, quiet=chosen.quiet),
        publish=tuple(dict.fromkeys(chosen.publish)),
        named=use,
    )


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
