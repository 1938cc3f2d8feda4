"""Which commands may run: `commands.allow` and `commands.deny` of a policy, applied to a command line. Pure.

    decision = judge(policy.commands, "git -C /x push && ls")
    decision.allowed, decision.denied        # which part of the line, why, by which rule, the smallest change

How a line is judged, top to bottom:

    checker       every simple command, and every one inside of those  (scope: what one is judged with)
    grammar       structure: lists, pipelines, compound commands  (simple_command, word_reader; syntax: as data)
    rule_check    what the rules say of one command  (rules: what an allow rule and a deny rule match; patterns;
                  rule_files: what no line may write; runners: options behind what a rule names)
    tools         what is known to be harmless, a line for each tool  (options: words; exec_options: awk, sed;
                  families, harmless_subcommands; made_files, clone_names: what they write by themselves)
    programs      which run code, which run other programs  (program_name, wrappers: what is inside of them)
    builtins, variables, redirections, write_targets   what the shell does without a program

A small part of the language is understood, and what is not understood is refused: a name that is put together while it
runs, text that is evaluated as code, an option that is not known to be harmless, and what bash and sh read differently.
Must not know: how a command is run, or that there is a sandbox.
"""

from fumehood.policy.commands.checker import judge, judge_argv
from fumehood.policy.commands.decision import CommandDecision, SourceSpan
from fumehood.policy.commands.write_targets import WRITABLE

__all__ = ["WRITABLE", "CommandDecision", "SourceSpan", "judge", "judge_argv"]
