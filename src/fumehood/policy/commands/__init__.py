"""Which commands may run: `commands.allow` and `commands.deny` of a policy, applied to a command line. Pure.

    verdict = judge(policy.commands, "git -C /x push && ls")
    verdict.allowed, verdict.refusals        # which part of the line, why, which rule, the smallest change

How a line is judged, top to bottom:

    judging       characters, then every simple command, and every one inside of those
    grammar       structure: lists, pipelines, compound commands, here-documents  (cursor: words, quotes, expansions)
    agreement     tree-sitter's grammar of bash has to find the same commands and words
    rules         what an allow rule and a deny rule match
    subcommands, unwrapping, shells, hatches (awk, sed)    what is known about programs (programs: as data)
    variables, builtins, redirections                      what the shell can do without a program

What cannot be analysed is denied: a name that is put together while it runs, text that is evaluated as code, syntax
that two readers understand differently. Must not know: how a command is run, or that there is a sandbox.
"""

from fumehood.policy.commands.judging import judge, judge_argv
from fumehood.policy.commands.verdict import Refusal, Verdict

__all__ = ["Refusal", "Verdict", "judge", "judge_argv"]
