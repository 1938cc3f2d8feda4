"""The judgement of a command: every simple command of a line, and every one inside of those, against the rules."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fumehood.policy.commands import programs
from fumehood.policy.commands.awk import find_awk_hatch
from fumehood.policy.commands.builtins import (
    BUILTINS,
    BUILTINS_OF_BASH,
    REFUSED_BUILTINS,
    check_builtin,
    exported_by,
    set_by,
)
from fumehood.policy.commands.connections import Connections
from fumehood.policy.commands.grammar import read_script
from fumehood.policy.commands.naming import check_characters, is_known_tool, known_name, known_program
from fumehood.policy.commands.options import find_offence
from fumehood.policy.commands.places import WRITABLE, Place, check_descriptor, goes_astray, readable_descriptors
from fumehood.policy.commands.rules import Rule, parse_rule, rule_for
from fumehood.policy.commands.script import Assignment, Script, Simple
from fumehood.policy.commands.sed import find_sed_hatch
from fumehood.policy.commands.shells import inner_text
from fumehood.policy.commands.subcommands import Resolved, resolve
from fumehood.policy.commands.unwrapping import Inside, unwrap, unwrap_by
from fumehood.policy.commands.variables import Names, assigned_numbers, check_assignment
from fumehood.policy.commands.verdict import Refusal, RefusedError, Verdict
from fumehood.policy.commands.words import Word, known

if TYPE_CHECKING:
    from fumehood.policy.actions import Commands

_MOST_COMMANDS = 1000
_MOST_REFUSALS = 20
_DEEPEST = 8
_ANYTHING = parse_rule("*")
_ASSIGNS = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_SPELLED_ONLY = frozenset({"source", "."})


def judge(commands: Commands, text: str, *, is_bash: bool = True, writable: Sequence[str] = WRITABLE) -> Verdict:
    """A command line, as it would be given to a shell. `writable` are the folders that the sandbox lets be written."""
    if commands.is_open:
        return Verdict()
    bench = _Bench(commands, writable)
    bench.judge_text(_Source(text, None), is_bash=is_bash, depth=0)
    return bench.verdict()


def judge_argv(commands: Commands, argv: Sequence[str], *, writable: Sequence[str] = WRITABLE) -> Verdict:
    """A command that is started without a shell. Spans are those of the words as a shell would quote them."""
    if commands.is_open:
        return Verdict()
    bench, words, length = _Bench(commands, writable), list[Word](), 0
    quoted = [shlex.quote(argument) for argument in argv]
    for argument, shown in zip(argv, quoted, strict=True):
        words.append(known(argument, length, length + _bytes(shown)))
        length += _bytes(shown) + 1
    source = _Source(" ".join(quoted), None)
    with bench.refusing(source):
        bench.judge_words(words, _Room(source, None, 0, Place(writable)))
    return bench.verdict()


@dataclass(frozen=True, slots=True)
class _Source:
    """A source, and, for one inside of another, where it stands there."""

    text: str
    outer: tuple[int, int] | None

    def refusal(self, error: RefusedError) -> Refusal:
        data = self.text.encode("utf-8", "surrogatepass")
        start, end = (len(data[:at].decode("utf-8", "replace")) for at in (error.start, error.end))
        shown = self.outer or (start, end)
        return Refusal(*shown, self.text[start:end], error.why, error.rule, error.remedy)

    def inside(self, word: Word, text: str) -> _Source:
        data = self.text.encode("utf-8", "surrogatepass")
        start, end = (len(data[:at].decode("utf-8", "replace")) for at in (word.start, word.end))
        return _Source(text, self.outer or (start, end))


@dataclass(frozen=True, slots=True)
class _Room:
    """What holds for the commands of one script; without a script there is no shell, and none of its own commands."""

    source: _Source
    script: Script | None
    depth: int
    place: Place
    moves: bool = False
    """It changes its folder, so that a relative path says nothing."""


@dataclass(frozen=True, slots=True)
class _Command:
    """One command of a room; `name` is the one by which the tables know its program."""

    words: Sequence[Word]
    program: str
    name: str
    arguments: list[Word]
    resolved: Resolved
    room: _Room

    @property
    def span(self) -> tuple[int, int]:
        return self.words[0].start, self.words[-1].end

    @property
    def runs_code(self) -> bool:
        return self.name in programs.INTERPRETERS or self.name in programs.SHELLS or "/" in self.name


class _Bench:
    def __init__(self, commands: Commands, writable: Sequence[str]) -> None:
        allow = commands.allow
        self._allow = (_ANYTHING,) if allow is None else tuple(map(parse_rule, allow))
        self._deny = tuple(map(parse_rule, commands.deny))
        self._writable = writable
        self._refusals: list[Refusal] = []
        self._exported: set[str] = set()
        """By any script so far: in a shell inside of another, what was exported stays so."""
        self._readable = frozenset({0})
        """The same for descriptors by which a file is read."""

    def verdict(self) -> Verdict:
        """In the order of the line."""
        ordered = sorted(dict.fromkeys(self._refusals), key=lambda refusal: refusal.start)
        return Verdict(tuple(ordered[:_MOST_REFUSALS]))

    @contextmanager
    def refusing(self, source: _Source) -> Iterator[None]:
        try:
            yield
        except RefusedError as error:
            self._refusals.append(source.refusal(error))

    def judge_text(self, source: _Source, *, is_bash: bool, depth: int, is_astray: bool = False) -> None:
        with self.refusing(source):
            check_characters(source.text)
            data = source.text.encode()
            if depth > _DEEPEST:
                raise RefusedError(0, len(data), "shells are nested too deeply", "write it in several lines")
            script = read_script(data.decode("latin-1"), is_bash=is_bash)
            if len(script.commands) > _MOST_COMMANDS:
                raise RefusedError(0, len(data), f"more than {_MOST_COMMANDS} commands", "write it in several parts")
            self._judge_script(script, source, depth, is_astray=is_astray)

    def _judge_script(self, script: Script, source: _Source, depth: int, *, is_astray: bool) -> None:
        assignments = list(_assignments(script))
        names = Names((*assignments, *assigned_numbers(script.arithmetic)), script, frozenset(self._exported))
        self._readable = readable_descriptors(script.commands, self._readable)
        self._exported.update(name for simple in script.commands for name in exported_by(simple))
        exported = self._exported
        for simple in script.commands:
            simple.words = list(map(names.settled, simple.words))
        is_astray = is_astray or goes_astray(script.commands)
        moves = any(simple.words and simple.words[0].text in ("cd", "pushd", "popd") for simple in script.commands)
        room = _Room(source, script, depth, Place(self._writable, is_astray), moves)
        for assignment in (*script.assigned, *(given for given in assignments if given.name in exported)):
            with self.refusing(source):
                shown, is_exported = (assignment.start, assignment.end), assignment.name in exported
                check_assignment(assignment.name, assignment.values, shown, is_exported=is_exported)
        for arithmetic in script.arithmetic:
            with self.refusing(source):
                names.check_arithmetic(arithmetic.text, (arithmetic.start, arithmetic.end))
        connections = Connections(names)
        for simple in script.commands:
            for redirection in simple.redirections:
                with self.refusing(source):
                    connections.check(redirection)
                    check_descriptor(redirection, self._readable)
            self._judge_simple(simple, names, room)

    def _judge_simple(self, simple: Simple, names: Names, room: _Room) -> None:
        for redirection in simple.redirections:
            with self.refusing(room.source):
                target = redirection.target
                room.place.check_redirection(replace(redirection, target=names.settled(target) if target else None))
        for assignment in simple.assignments:
            # `IFS= read` is how lines are read whole; it holds for that command alone.
            if assignment.name == "IFS" and simple.words and simple.words[0].raw == "read":
                continue
            with self.refusing(room.source):
                shown, is_exported = (assignment.start, assignment.end), bool(simple.words)
                check_assignment(assignment.name, assignment.values, shown, is_exported=is_exported)
        if simple.words:
            with self.refusing(room.source):
                self.judge_words(simple.words, room)

    def judge_words(self, words: Sequence[Word], room: _Room) -> None:
        """Raises RefusedError."""
        program, arguments = known_program(words[0]), list(words[1:])
        name = known_name(program)
        command = _Command(words, program, name, arguments, resolve(name, arguments), room)
        self._check_denied(command)
        if room.script and program in BUILTINS:
            if program in BUILTINS_OF_BASH and not room.script.is_bash:
                why = f"{program} means something else to sh"
                raise RefusedError(*command.span, why, "write it for bash, or leave it out")
            check_builtin(program, arguments)
        elif room.script and program in REFUSED_BUILTINS:
            self._check_spelled(command)
        else:
            self._judge_inside(command, self._check_allowed(command))

    def _judge_inside(self, command: _Command, granted: frozenset[str]) -> None:
        name, resolved, room = command.name, command.resolved, command.room
        if name in programs.SHELLS:
            self._judge_shell(command)
            return
        self._judge_contents(unwrap(name, command.arguments, granted), room)
        if resolved.wrapper:
            inside = unwrap_by(f"{name} {resolved.subcommand}", resolved.wrapper, resolved.arguments[1:])
            self._judge_contents(inside, room)

    def _check_denied(self, command: _Command) -> None:
        resolved = command.resolved
        for rule in self._deny:
            is_meant = rule.denies(command.program, resolved.arguments, has_subcommand=resolved.is_certain)
            if not is_meant and rule.program == resolved.name and resolved.may_be_alias and len(rule.words) > 1:
                is_meant = True
            if is_meant:
                is_sure = all(word.text is not None for word in command.words) and not resolved.may_be_alias
                why = "this is denied" if is_sure else f"it may turn out to be {rule.text!r}, which is denied"
                remedy = f"remove {rule.text!r} from commands.deny" if is_sure else "write the words out"
                raise RefusedError(*command.span, why, remedy, rule.text)

    def _check_allowed(self, command: _Command) -> frozenset[str]:
        """The options that rules spell."""
        name, program, arguments = command.name, command.program, command.arguments
        resolved, place = command.resolved, command.room.place
        matching = self._matching(command)
        if not matching:
            raise RefusedError(*command.span, *self._lack(command))
        if name in programs.FAMILIES and not resolved.is_certain:
            why = f"it cannot be known which sub-command of {name} this is"
            raise RefusedError(*command.span, why, "write it out, first")
        granted = frozenset(rule.option for rule in self._allow if rule.option and _is_about(rule, command))
        if found := _script_problem(name, arguments, place):
            if not any(_spells(rule, program, arguments, found[0]) for rule in matching):
                rule = rule_for(program, arguments[: found[0] + 1])
                fix = "write it plainly" + (f", or add {rule!r} to commands.allow" if rule else "")
                raise RefusedError(*command.span, found[1], fix)
            return granted
        for tool, given, offset in _parts(name, resolved):
            spelled = arguments if offset == 0 else resolved.arguments
            while found := find_offence(tool, given, place, granted):
                if not any(_spells(rule, program, spelled, found.position + offset) for rule in matching):
                    raise RefusedError(*command.span, found.why, found.remedy)
                if not found.option:
                    break
                granted |= {found.option}
        return granted

    def _matching(self, command: _Command) -> list[Rule]:
        program, arguments, resolved = command.program, command.arguments, command.resolved
        if program.startswith(".") and "/" in program and command.room.moves:
            return []
        found = [
            rule
            for rule in self._allow
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

    def _lack(self, command: _Command) -> tuple[str, str]:
        program, resolved = command.program, command.resolved
        rule = f"{program} {resolved.subcommand}" if resolved.subcommand else program
        if program.startswith("-") or "=" in program:
            return f"{program} is not the name of a program", "write the name of the program in its place"
        if program.startswith(".") and "/" in program and command.room.moves:
            why = f"the line changes the folder, so that it is not known which program {program} is"
            return why, "leave cd out, or write the whole path of the program"
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

    def _check_spelled(self, command: _Command) -> None:
        program = command.program
        rules = [rule for rule in self._allow if rule.program == program and len(rule.words) > 1]
        if program in _SPELLED_ONLY and any(rule.allows(program, command.arguments) for rule in rules):
            return
        why = f"{program}: not understood; it runs text or files, or changes what other words mean"
        rule = rule_for(program, command.arguments) if program in _SPELLED_ONLY and command.arguments else None
        raise RefusedError(*command.span, why, f"add {rule!r} to commands.allow" if rule else "write it plainly")

    def _judge_shell(self, command: _Command) -> None:
        name, arguments, room = command.name, command.arguments, command.room
        if any(_spells(rule, command.program, arguments, 0) for rule in self._allow):
            return
        text = inner_text(name, arguments, command.span)
        if text is not None:
            is_bash = programs.READABLE_SHELLS[name]
            inside, is_astray = room.source.inside(text, text.text or ""), room.place.is_doubtful
            self.judge_text(inside, is_bash=is_bash, depth=room.depth + 1, is_astray=is_astray)

    def _judge_contents(self, inside: Inside, room: _Room) -> None:
        for word in inside.assignments:
            found = _ASSIGNS.match(word.prefix)
            value = (known(found[2]) if word.text is not None else word,) if found else ()
            name, is_exported = (found[1], True) if found else (word.prefix, False)  # `env -u NAME` exports nothing
            check_assignment(name, value, (word.start, word.end), is_exported=is_exported)
            self._exported.add(name)
        for word in inside.written:
            if found := room.place.problem(word):
                raise RefusedError(word.start, word.end, *found)
        if inside.text:
            self._judge_joined(inside.text, room)
        for words in inside.commands:
            # A program starts programs; only the shell's own words can start the shell's own commands.
            inner = replace(room, script=None, depth=room.depth + 1)
            if inner.depth > _DEEPEST:
                raise RefusedError(words[0].start, words[-1].end, "commands are nested too deeply", "write it plainly")
            self.judge_words(words, inner)

    def _judge_joined(self, words: Sequence[Word], room: _Room) -> None:
        """Words that a shell gets as one text."""
        for word in words:
            if word.text is None:
                why = f"{word.raw} is put together while it runs and then read as code"
                raise RefusedError(word.start, word.end, why, "write it out")
        text = " ".join(word.text or "" for word in words)
        inside, is_astray = room.source.inside(words[0], text), room.place.is_doubtful
        self.judge_text(inside, is_bash=False, depth=room.depth + 1, is_astray=is_astray)


def _assignments(script: Script) -> Iterator[Assignment]:
    yield from script.assigned
    for simple in script.commands:
        yield from simple.assignments
        yield from set_by(simple)


def _parts(name: str, resolved: Resolved) -> Iterator[tuple[str, list[Word], int]]:
    """Each tool with the words that it gets, and how many of a rule's words stand before those."""
    yield name, resolved.before, 0
    if resolved.subcommand is not None and not resolved.runs_code:
        yield f"{name} {resolved.subcommand}", resolved.arguments[1:], 1


def _script_problem(name: str, arguments: list[Word], place: Place) -> tuple[int, str] | None:
    if name in programs.AWK:
        return find_awk_hatch(arguments)
    return find_sed_hatch(arguments, place) if name in programs.SED else None


def _is_about(rule: Rule, command: _Command) -> bool:
    """Whether a rule such as `sort -o` or `git log --output` is about this program and its sub-command."""
    if not replace(rule, words=rule.words[:1]).allows(command.program, []):
        return False
    return len(rule.words) < 3 or command.resolved.subcommand == rule.words[1]


def _grants(rule: Rule, command: _Command) -> bool:
    """A rule such as `sort -o` is about that option wherever it stands."""
    if rule.option is None or not _is_about(rule, command):
        return False
    given = {(word.text if word.text is not None else word.prefix).partition("=")[0] for word in command.arguments}
    return rule.option in given


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _spells(rule: Rule, program: str, arguments: Sequence[Word], position: int) -> bool:
    """Whether the rule has a word of its own for the one at that place."""
    if len(rule.words) <= position + 1 or rule.words[position + 1] == "*" or not rule.names_program:
        return False
    return rule.allows(program, arguments)
