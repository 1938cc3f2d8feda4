"""Which commands may run: `commands.allow` and `commands.deny` of a policy, applied to a command line. Pure.

    verdict = judge(policy.commands, "git -C /x push && ls")
    verdict.allowed, verdict.refusals        # which part of the line, why, which rule, the smallest change

How a line is judged, top to bottom:

    judging       every simple command, and every one inside of those  (naming: characters, the name of the program)
    grammar       structure: lists, pipelines, compound commands, here-documents  (cursor: words, quotes, expansions)
    rules         what an allow rule and a deny rule match
    tools         what is known to be harmless, a line for each tool  (options: words; awk, sed, brackets: scripts)
    programs      which run code, which run other programs  (subcommands, unwrapping, shells: what is inside of them)
    builtins, variables, places, connections   what the shell can do without a program: its commands, values, files

A small part of the language is understood, and what is not understood is refused: a name that is put together while it
runs, text that is evaluated as code, an option that nobody has called harmless. Must not know: how a command is run, or
that there is a sandbox.
"""

from fumehood.policy.commands.judging import judge, judge_argv
from fumehood.policy.commands.places import WRITABLE
from fumehood.policy.commands.verdict import Refusal, Verdict

__all__ = ["WRITABLE", "Refusal", "Verdict", "judge", "judge_argv"]
