"""`hood shell`: a shell in a sandbox, with this terminal in front of it."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from fumehood.cli import exitcodes, overrides
from fumehood.cli.arguments import Parser, split
from fumehood.cli.commands import UncollectedImports
from fumehood.cli.output import say
from fumehood.errors import UsageError

if TYPE_CHECKING:
    from fumehood.backends.native.prestart import Prestart
    from fumehood.sandbox.async_sandbox import AsyncSandbox

_USAGE = "hood shell [options] [-- COMMAND ...]"
_DETAILS = """\
Ctrl-C, Ctrl-Z and Ctrl-D are the shell's; `exit` leaves. What you write to
/workspace is gone with the sandbox; `hood sandbox shell NAME` keeps it. Without
--policy the shell may stay open for 12 hours, unless hood.yaml has a timeout.
Exit code: the shell's own, else as `hood run`.

A program in the sandbox writes to your terminal as it is: one that you do not
trust at all belongs into `hood run`, which shows text and colours only.
"""
# An interactive shell ends when its user leaves; a run's usual limits would end it in the middle of a word.
INTERACTIVE = {"timeout": "12h", "output": "1G"}
# Tells it apart from the shell outside.
_PROMPT = r"(hood) \w \$ "


def build_parser() -> argparse.ArgumentParser:
    description = "Open an interactive shell (or another command) in a fresh sandbox."
    parser = Parser(prog="hood shell", usage=_USAGE, description=description, epilog=_DETAILS)
    overrides.add_options(parser)
    return parser


def execute(arguments: list[str]) -> int:
    ours, command = split(arguments)
    chosen = build_parser().parse_args(ours, namespace=overrides.Arguments())
    check_terminal()
    from fumehood.backends.native.prestart import early_interpreter

    with early_interpreter() as prestart:
        return _execute(chosen, command, prestart)


def check_terminal() -> None:
    if not (os.isatty(0) and os.isatty(1)):
        raise UsageError("a shell needs a terminal; `hood run --language sh -` takes a script on standard input")


def _execute(chosen: overrides.Arguments, command: list[str], prestart: Prestart) -> int:
    with UncollectedImports():
        from fumehood.backends.selection import use_prestart
        from fumehood.cli import policy_choice
        from fumehood.cli.place import fresh_sandbox
        from fumehood.policy import Policy
    policy = overrides.load_policy(chosen, Policy(resources=INTERACTIVE))
    policy_choice.tell(chosen)
    use_prestart(policy, prestart)
    return converse(fresh_sandbox(policy, progress=say), chosen, command)


def converse(box: AsyncSandbox, chosen: overrides.Arguments, command: list[str]) -> int:
    """A shell, or another command, in a sandbox that is not open yet."""
    with UncollectedImports():
        from fumehood.cli.shell_terminal import run_shell
        from fumehood.results import Cause
    environment = overrides.environment(chosen.env, os.environ)
    if not command:
        command, environment = ["bash"], {"PS1": _PROMPT, **environment}
    result = run_shell(box, command, environment)
    overrides.tell_denials(chosen, result.denials)
    if result.cause is not Cause.EXIT:
        say(f"{result.status} ({result.cause}): {overrides.name_flags(result.detail)}")
    return exitcodes.for_result(result)
