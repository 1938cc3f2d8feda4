"""The judgement of a command: every simple command of a line, and every one inside of those, against the rules."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from fumehood.policy.commands import programs
from fumehood.policy.commands.builtins import (
    BUILTINS,
    BUILTINS_OF_BASH,
    REFUSED_BUILTINS,
    check_builtin,
    check_readonly,
    exported_by,
    set_by,
)
from fumehood.policy.commands.decision import CommandDecision, RefusalError, SourceSpan
from fumehood.policy.commands.grammar import read_script
from fumehood.policy.commands.program_name import (
    check_characters,
    known_name,
    known_program,
    resolve,
)
from fumehood.policy.commands.redirections import ConnectionCheck, check_descriptor, readable_descriptors
from fumehood.policy.commands.rule_check import RuleChecker
from fumehood.policy.commands.scope import NamedCommand, ShellScope, SourceText
from fumehood.policy.commands.syntax import Assignment, ShellScript, SimpleCommand, Word, known
from fumehood.policy.commands.variables import VariableTracker, assigned_numbers, check_assignment, check_name
from fumehood.policy.commands.wrappers import InnerCommands, inner_text, unwrap, unwrap_by
from fumehood.policy.commands.write_targets import (
    WRITABLE,
    WriteTargets,
    begins_astray,
    goes_astray,
    is_elsewhere,
)
from fumehood.policy.decision import Decision

if TYPE_CHECKING:
    from fumehood.policy.command_rules import Commands

_MOST_COMMANDS = 1000
_MOST_REFUSALS = 20
_DEEPEST = 8
_ASSIGNS = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


def judge(
    commands: Commands, text: str, *, is_bash: bool = True, writable: Sequence[str] = WRITABLE, cwd: str = ""
) -> CommandDecision:
    """A command line, as it would be given to a shell.

    `writable` are the folders that the sandbox lets be written; `cwd` is the folder where the line begins, below the
    first of them if it is relative, and counts as a `cd` to it would.
    """
    if commands.is_open:
        return CommandDecision()
    checker = CommandChecker(commands, writable, cwd)
    checker.judge_text(SourceText(text, None), is_bash=is_bash, depth=0)
    return checker.decision()


def judge_argv(
    commands: Commands, argv: Sequence[str], *, writable: Sequence[str] = WRITABLE, cwd: str = ""
) -> CommandDecision:
    """A command that is started without a shell. Spans are those of the words as a shell would quote them."""
    if commands.is_open:
        return CommandDecision()
    checker, words, length = CommandChecker(commands, writable, cwd), list[Word](), 0
    quoted = [shlex.quote(argument) for argument in argv]
    for argument, shown in zip(argv, quoted, strict=True):
        words.append(known(argument, length, length + _bytes(shown)))
        length += _bytes(shown) + 1
    source = SourceText(" ".join(quoted), None)
    with checker.refusing(source):
        checker.judge_words(words, checker.scope(source))
    return checker.decision()


class CommandChecker:
    """Judges one command line, and every command inside of it."""

    def __init__(self, commands: Commands, writable: Sequence[str], cwd: str) -> None:
        self._rules = RuleChecker(commands)
        self._writable = writable
        files = self._rules.files_to_run(writable)
        self._targets = WriteTargets(writable, begins_astray(cwd, writable), files.names, files.folders)
        self._moves = is_elsewhere(cwd, writable[0])
        """Whether any script so far changes the folder: a shell inside of it begins there."""
        self._denied: list[Decision[SourceSpan]] = []
        self._exported: set[str] = set()
        """By any script so far: in a shell inside of another, what was exported stays so."""
        self._readable = frozenset({0})
        """The same for descriptors by which a file is read."""

    def scope(self, source: SourceText) -> ShellScope:
        """Of a command without a shell."""
        return ShellScope(source, None, 0, self._targets, self._moves)

    def decision(self) -> CommandDecision:
        """The decision, with refusals in the order of the line."""
        ordered = sorted(dict.fromkeys(self._denied), key=lambda decision: decision.attempt.start)
        return CommandDecision(tuple(ordered[:_MOST_REFUSALS]))

    @contextmanager
    def refusing(self, source: SourceText) -> Iterator[None]:
        try:
            yield
        except RefusalError as error:
            self._denied.append(source.decision(error))

    def judge_text(self, source: SourceText, *, is_bash: bool, depth: int, is_astray: bool = False) -> None:
        with self.refusing(source):
            check_characters(source.text)
            data = source.text.encode()
            if depth > _DEEPEST:
                raise RefusalError(0, len(data), "shells are nested too deeply", "write it in several lines")
            script = read_script(data.decode("latin-1"), is_bash=is_bash)
            if len(script.commands) > _MOST_COMMANDS:
                raise RefusalError(0, len(data), f"more than {_MOST_COMMANDS} commands", "write it in several parts")
            self._judge_script(script, source, depth, is_astray=is_astray)

    def _judge_script(self, script: ShellScript, source: SourceText, depth: int, *, is_astray: bool) -> None:
        assignments = list(_assignments(script))
        names = VariableTracker((*assignments, *assigned_numbers(script.arithmetic)), script, frozenset(self._exported))
        self._readable = readable_descriptors(script.commands, self._readable)
        self._exported.update(name for simple in script.commands for name in exported_by(simple))
        exported = self._exported
        for simple in script.commands:
            simple.words = list(map(names.settled, simple.words))
        is_astray = is_astray or self._targets.is_doubtful or goes_astray(script.commands, self._writable)
        moves = any(simple.words and simple.words[0].text in ("cd", "pushd", "popd") for simple in script.commands)
        self._moves = self._moves or moves
        scope = ShellScope(source, script, depth, replace(self._targets, is_doubtful=is_astray), self._moves)
        for assignment in (*script.assigned, *(given for given in assignments if given.name in exported)):
            with self.refusing(source):
                shown, is_exported = (assignment.start, assignment.end), assignment.name in exported
                check_assignment(assignment.name, assignment.values, shown, is_exported=is_exported)
        with self.refusing(source):
            check_readonly(script.commands, assignments)
        for arithmetic in script.arithmetic:
            with self.refusing(source):
                names.check_arithmetic(arithmetic.text, (arithmetic.start, arithmetic.end))
        connections = ConnectionCheck(names)
        for simple in script.commands:
            for redirection in simple.redirections:
                with self.refusing(source):
                    connections.check(redirection)
                    check_descriptor(redirection, self._readable)
            self._judge_simple(simple, names, scope)

    def _judge_simple(self, simple: SimpleCommand, names: VariableTracker, scope: ShellScope) -> None:
        for redirection in simple.redirections:
            with self.refusing(scope.source):
                target = redirection.target
                scope.targets.check_redirection(replace(redirection, target=names.settled(target) if target else None))
        for assignment in simple.assignments:
            # `IFS= read` is how lines are read whole; it holds for that command alone.
            if assignment.name == "IFS" and simple.words and simple.words[0].raw == "read":
                continue
            with self.refusing(scope.source):
                shown, is_exported = (assignment.start, assignment.end), bool(simple.words)
                check_assignment(assignment.name, assignment.values, shown, is_exported=is_exported)
        if simple.words:
            with self.refusing(scope.source):
                self.judge_words(simple.words, scope)

    def judge_words(self, words: Sequence[Word], scope: ShellScope) -> None:
        """Raises RefusalError."""
        program, arguments = known_program(words[0]), list(words[1:])
        name = known_name(program)
        command = NamedCommand(words, program, name, arguments, resolve(name, arguments), scope)
        self._rules.check_denied(command)
        if scope.script and program in BUILTINS:
            if program in BUILTINS_OF_BASH and not scope.script.is_bash:
                why = f"{program} means something else to sh"
                raise RefusalError(*command.span, why, "write it for bash, or leave it out")
            check_builtin(program, arguments)
        elif scope.script and program in REFUSED_BUILTINS:
            self._rules.check_spelled(command)
        else:
            self._judge_inside(command, self._rules.check_allowed(command))

    def _judge_inside(self, command: NamedCommand, granted: frozenset[str]) -> None:
        name, resolved, scope = command.name, command.resolved, command.scope
        if name in programs.SHELLS:
            self._judge_shell(command)
            return
        self._judge_contents(unwrap(name, command.arguments, granted), scope)
        if resolved.wrapper:
            inside = unwrap_by(f"{name} {resolved.subcommand}", resolved.wrapper, resolved.arguments[1:])
            self._judge_contents(inside, scope)

    def _judge_shell(self, command: NamedCommand) -> None:
        name, arguments, scope = command.name, command.arguments, command.scope
        if self._rules.spells(command):
            return
        text = inner_text(name, arguments, command.span)
        if text is not None:
            is_bash = programs.READABLE_SHELLS[name]
            inside, is_astray = scope.source.inside(text, text.text or ""), scope.targets.is_doubtful
            self.judge_text(inside, is_bash=is_bash, depth=scope.depth + 1, is_astray=is_astray)

    def _judge_contents(self, inside: InnerCommands, scope: ShellScope) -> None:
        for word in inside.assignments:
            found = _ASSIGNS.match(word.prefix)
            name, shown = found[1] if found else word.prefix, (word.start, word.end)
            if found:
                value = known(found[2]) if word.text is not None else word
                check_assignment(name, (value,), shown, is_exported=True)
            else:
                check_name(name, shown)  # `env -u NAME` exports nothing
            self._exported.add(name)
        for word in inside.written:
            if found := scope.targets.problem(word):
                raise RefusalError(word.start, word.end, *found)
        if inside.text:
            self._judge_joined(inside.text, scope)
        for words in inside.commands:
            # A program starts programs; only the shell's own words can start the shell's own commands.
            inner = replace(scope, script=None, depth=scope.depth + 1)
            if inner.depth > _DEEPEST:
                raise RefusalError(words[0].start, words[-1].end, "commands are nested too deeply", "write it plainly")
            self.judge_words(words, inner)

    def _judge_joined(self, words: Sequence[Word], scope: ShellScope) -> None:
        """Words that a shell gets as one text."""
        for word in words:
            if word.text is None:
                why = f"{word.raw} is put together while it runs and then read as code"
                raise RefusalError(word.start, word.end, why, "write it out")
        text = " ".join(word.text or "" for word in words)
        inside, is_astray = scope.source.inside(words[0], text), scope.targets.is_doubtful
        self.judge_text(inside, is_bash=False, depth=scope.depth + 1, is_astray=is_astray)


def _assignments(script: ShellScript) -> Iterator[Assignment]:
    yield from script.assigned
    for simple in script.commands:
        yield from simple.assignments
        yield from set_by(simple)


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
