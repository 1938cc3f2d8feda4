"""Whether the rules of a policy allow one command, and with which options."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from fumehood.policy.commands import programs
from fumehood.policy.commands.decision import RefusalError
from fumehood.policy.commands.exec_options import find_script_problem
from fumehood.policy.commands.harmless_subcommands import HARMLESS_SUBCOMMANDS, has_subcommands
from fumehood.policy.commands.options import find_unsafe_word
from fumehood.policy.commands.program_name import ResolvedCommand, is_known_tool
from fumehood.policy.commands.rule_files import RuleFiles, files_to_run, is_local
from fumehood.policy.commands.rules import CommandRule, parse_rule, rule_for
from fumehood.policy.commands.runners import RUNNERS, find_unsafe_word_of_runner, words_left_free
from fumehood.policy.commands.scope import NamedCommand, ShellScope
from fumehood.policy.commands.syntax import Word
from fumehood.policy.commands.wrappers import says_what_runs
from fumehood.policy.commands.write_targets import WriteTargets, is_astray

if TYPE_CHECKING:
    from fumehood.policy.command_rules import Commands

_ANYTHING = parse_rule("*")
_WORD = re.compile(r"[\w-]+")
_SPELLED_ONLY = frozenset({"source", "."})


class RuleChecker:
    """`commands.allow` and `commands.deny` of one policy. Its methods raise RefusalError."""

    def __init__(self, commands: Commands) -> None:
        allow = commands.allow
        self._allow = (_ANYTHING,) if allow is None else tuple(map(parse_rule, allow))
        self._deny = tuple(map(parse_rule, commands.deny))

    def files_to_run(self, writable: Sequence[str]) -> RuleFiles:
        return files_to_run(self._allow, writable)

    def spells(self, command: NamedCommand) -> bool:
        """Whether a rule names what a shell runs, and not its options alone."""
        rules = (rule for rule in self._here(command.scope) if any(map(says_what_runs, rule.words[1:])))
        return any(_spells(rule, command.program, command.arguments, 0) for rule in rules)

    def _here(self, scope: ShellScope) -> list[CommandRule]:
        """The rules that hold in the folder where a line is."""
        return [rule for rule in self._allow if not (scope.moves and is_local(rule))]

    def check_denied(self, command: NamedCommand) -> None:
        resolved = command.resolved
        for rule in self._deny:
            is_meant = rule.denies(command.program, resolved.arguments, has_subcommand=resolved.is_certain)
            if not is_meant and rule.program == resolved.name and resolved.may_be_alias and len(rule.words) > 1:
                is_meant = True
            if is_meant:
                is_sure = all(word.text is not None for word in command.words) and not resolved.may_be_alias
                why = "this is denied" if is_sure else f"it may turn out to be {rule.text!r}, which is denied"
                fix = f"remove {rule.text!r} from commands.deny" if is_sure else "write the words out"
                raise RefusalError(*command.span, why, fix, f"commands.deny[{rule.text}]")

    def check_allowed(self, command: NamedCommand) -> frozenset[str]:
        """The options that rules spell."""
        name, program, arguments = command.name, command.program, command.arguments
        resolved, targets = command.resolved, _targets_of(command)
        matching = self._matching(command, self._here(command.scope))
        if not matching:
            raise RefusalError(*command.span, *self._lack(command))
        if name in programs.FAMILIES and not resolved.is_certain:
            why = f"it cannot be known which sub-command of {name} this is"
            raise RefusalError(*command.span, why, "write it out, first")
        granted = frozenset(rule.option for rule in self._allow if rule.option and _is_about(rule, command))
        if found := find_script_problem(name, arguments, targets):
            if not any(_spells(rule, program, arguments, found[0]) for rule in matching):
                rule = rule_for(program, arguments[: found[0] + 1])
                fix = "write it plainly" + (f", or add {rule!r} to commands.allow" if rule else "")
                raise RefusalError(*command.span, found[1], fix)
            return granted
        for tool, given, offset in _parts(name, resolved):
            spelled = arguments if offset == 0 else resolved.arguments
            passed = frozenset[int]()
            while found := find_unsafe_word(tool, given, targets, granted, passed):
                if not any(_spells(rule, program, spelled, found.position + offset) for rule in matching):
                    raise RefusalError(*command.span, found.why, found.fix)
                if not found.option or found.position in passed:
                    break
                # An option that is granted already has a value that the rule spells.
                passed |= {found.position} if found.option in granted else passed
                granted |= {found.option}
        if name in RUNNERS and (resolved.runs_code or command.runs_code):
            self._check_runner(command, matching, granted)
        return granted

    def _check_runner(self, command: NamedCommand, matching: Sequence[CommandRule], granted: frozenset[str]) -> None:
        """The words behind those of a rule, for one rule at least."""
        name, words = command.name, command.resolved.arguments
        found = [find_unsafe_word_of_runner(name, words, free, granted) for free in map(words_left_free, matching)]
        if problem := None if None in found else found[0]:
            raise RefusalError(*command.span, problem.why, problem.fix)

    def check_spelled(self, command: NamedCommand) -> None:
        program = command.program
        rules = [rule for rule in self._here(command.scope) if rule.program == program and len(rule.words) > 1]
        if program in _SPELLED_ONLY and any(rule.allows(program, command.arguments) for rule in rules):
            return
        why = f"{program}: not understood; it runs text or files, or changes what other words mean"
        rule = rule_for(program, command.arguments) if program in _SPELLED_ONLY and command.arguments else None
        raise RefusalError(*command.span, why, f"add {rule!r} to commands.allow" if rule else "write it plainly")

    def _matching(self, command: NamedCommand, rules: Sequence[CommandRule]) -> list[CommandRule]:
        program, arguments, resolved = command.program, command.arguments, command.resolved
        found = [
            rule
            for rule in rules
            if rule.allows(program, arguments)
            or (resolved.is_certain and rule.allows(program, resolved.arguments))
            or _grants(rule, command)
        ]
        if not is_known_tool(command.name):
            found = [rule for rule in found if not rule.is_open]
        if command.runs_code:
            found = [rule for rule in found if rule.names_program]
        if resolved.runs_code:
            found = [rule for rule in found if rule.names_program and len(rule.words) > 1 and "*" not in rule.words[1]]
        return found

    def _lack(self, command: NamedCommand) -> tuple[str, str]:
        program, resolved = command.program, command.resolved
        rule = f"{program} {resolved.subcommand}" if resolved.subcommand else program
        if has_subcommands(resolved.name, resolved.subcommand or "") and _WORD.fullmatch(resolved.following or ""):
            rule = f"{rule} {resolved.following}"
        if program.startswith("-") or "=" in program:
            return f"{program} is not the name of a program", "write the name of the program in its place"
        if command.scope.moves and self._matching(command, self._allow):
            why = f"the line changes the folder, so that it is not known which file {program} is or runs"
            return why, "leave cd (or cwd) out, or write the whole path, in the rule too"
        if resolved.runs_code and resolved.name == "git":
            return f"{rule} may start hooks, an editor or another program", f"add {rule!r} to commands.allow"
        if resolved.runs_code and resolved.name in HARMLESS_SUBCOMMANDS:
            return (
                f"{rule} may run code or write files, and is not known to be harmless",
                f"add {rule!r} to commands.allow",
            )
        if resolved.runs_code:
            return f"{rule} runs code that cannot be read here", f"add {rule!r} to commands.allow"
        if command.runs_code:
            return f"{program} runs code that cannot be read here", f"add {program!r} to commands.allow"
        if any(other.is_open for other in self._allow) and not is_known_tool(command.name):
            why = f"it is not known here what {program} can do, and '*' allows only tools of which it is"
            return why, f"add {program!r} to commands.allow, beside '*'"
        is_named = any(other.program == command.name for other in self._allow)
        if is_named and resolved.subcommand is None and command.arguments:
            return f"{program} is not allowed with these words", "put the sub-command first and write its words out"
        return f"{rule} is not allowed", f"add {rule!r} to commands.allow"


def _targets_of(command: NamedCommand) -> WriteTargets:
    """`git -C x` writes in that folder."""
    targets, words = command.scope.targets, command.resolved.before
    folders = [word for before, word in pairwise(words) if command.name == "git" and before.text == "-C"]
    is_doubtful = targets.is_doubtful or any(is_astray(folder, targets.writable) for folder in folders)
    return replace(targets, is_doubtful=is_doubtful)


def _parts(name: str, resolved: ResolvedCommand) -> Iterator[tuple[str, list[Word], int]]:
    """Each tool with the words that it gets, and how many of a rule's words stand before those."""
    yield name, resolved.before, 0
    if resolved.subcommand is not None and not resolved.runs_code:
        own = len(resolved.tool.split()) - 1
        yield resolved.tool, resolved.arguments[own:], own


def _is_about(rule: CommandRule, command: NamedCommand) -> bool:
    """Whether a rule such as `sort -o` or `git log --output` is about this program and its sub-command."""
    if not replace(rule, words=rule.words[:1]).allows(command.program, []):
        return False
    first = command.arguments[0].text if command.name in RUNNERS and command.arguments else None
    return len(rule.words) < 3 or (command.resolved.subcommand or first) == rule.words[1]


def _grants(rule: CommandRule, command: NamedCommand) -> bool:
    """A rule such as `sort -o` is about that option wherever it stands."""
    if rule.option is None or not _is_about(rule, command):
        return False
    given = {(word.text if word.text is not None else word.prefix).partition("=")[0] for word in command.arguments}
    return rule.option in given


def _spells(rule: CommandRule, program: str, arguments: Sequence[Word], position: int) -> bool:
    """Whether the rule has a word of its own for the one at that place."""
    if len(rule.words) <= position + 1 or rule.words[position + 1] == "*" or not rule.names_program:
        return False
    return rule.allows(program, arguments)
