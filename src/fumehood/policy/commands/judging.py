"""The judgement of a command: every simple command of a line, and every one inside of those, against the rules."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from fumehood.policy.commands import programs
from fumehood.policy.commands.agreement import check_agreement
from fumehood.policy.commands.builtins import check_builtin
from fumehood.policy.commands.grammar import read_script
from fumehood.policy.commands.hatches import find_opening
from fumehood.policy.commands.redirections import check_redirection
from fumehood.policy.commands.rules import Rule, parse_rule, plain_name
from fumehood.policy.commands.script import Assignment, Script, Simple
from fumehood.policy.commands.shells import inner_text
from fumehood.policy.commands.subcommands import Resolved, resolve
from fumehood.policy.commands.unwrapping import Inside, unwrap, unwrap_by
from fumehood.policy.commands.variables import Ledger
from fumehood.policy.commands.verdict import Refusal, RefusedError, Verdict
from fumehood.policy.commands.words import Word, known

if TYPE_CHECKING:
    from fumehood.policy.actions import Commands

_MOST_BYTES = 64 * 1024
_MOST_COMMANDS = 1000
_MOST_REFUSALS = 20
_DEEPEST = 8
_ANYTHING = parse_rule("*")
_NAME = re.compile(r"[!-~]+")
_ASSIGNS = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_VERSIONED = re.compile(r"(python|perl|ruby|lua|php|node|pip|gcc|g\+\+|clang)[0-9.-]+")
_SPELLED_ONLY = frozenset({"source", "."})


def judge(commands: Commands, text: str, *, is_bash: bool = True) -> Verdict:
    """A command line, as it would be given to a shell."""
    if commands.is_open:
        return Verdict()
    bench = _Bench(commands)
    bench.judge_text(_Place(text, None), is_bash=is_bash, depth=0)
    return bench.verdict()


def judge_argv(commands: Commands, argv: Sequence[str]) -> Verdict:
    """A command that is started without a shell. Spans are those of the words as a shell would quote them."""
    if commands.is_open:
        return Verdict()
    line, words = "", list[Word]()
    for argument in argv:
        start = _bytes(line) + (1 if line else 0)
        line = f"{line} {shlex.quote(argument)}" if line else shlex.quote(argument)
        words.append(known(argument, start, _bytes(line)))
    bench = _Bench(commands)
    place = _Place(line, None)
    with bench.refusing(place), bench.reporting(place):
        bench.judge_words(words, _Room(place, None, depth=0))
        bench.ledger.check()
    return bench.verdict()


@dataclass(frozen=True, slots=True)
class _Place:
    """A source, and, for one inside of another, where it stands there."""

    text: str
    outer: tuple[int, int] | None

    def refusal(self, error: RefusedError) -> Refusal:
        data = self.text.encode("utf-8", "surrogatepass")
        start, end = (len(data[:at].decode("utf-8", "replace")) for at in (error.start, error.end))
        shown = self.outer or (start, end)
        return Refusal(*shown, self.text[start:end], error.why, error.rule, error.remedy)

    def inside(self, word: Word, text: str) -> _Place:
        data = self.text.encode("utf-8", "surrogatepass")
        start, end = (len(data[:at].decode("utf-8", "replace")) for at in (word.start, word.end))
        return _Place(text, self.outer or (start, end))


@dataclass(frozen=True, slots=True)
class _Room:
    """What holds for the commands of one script; without a script there is no shell, and none of its own commands."""

    place: _Place
    script: Script | None
    depth: int
    functions: dict[str, int] = field(default_factory=dict[str, int])
    """Those that are certainly defined, and from where on."""
    moves: bool = False
    """It changes its folder, so that a relative path says nothing."""


class _Bench:
    def __init__(self, commands: Commands) -> None:
        allow = commands.allow
        self._allow = (_ANYTHING,) if allow is None else tuple(map(parse_rule, allow))
        self._deny = tuple(map(parse_rule, commands.deny))
        self.ledger = Ledger()
        self._refusals: list[Refusal] = []

    def verdict(self) -> Verdict:
        """In the order of the line."""
        ordered = sorted(dict.fromkeys(self._refusals), key=lambda refusal: refusal.start)
        return Verdict(tuple(ordered[:_MOST_REFUSALS]))

    @contextmanager
    def refusing(self, place: _Place) -> Iterator[None]:
        try:
            yield
        except RefusedError as error:
            self._refuse(place, error)

    def _refuse(self, place: _Place, error: RefusedError) -> None:
        self._refusals.append(place.refusal(error))

    def reporting(self, place: _Place) -> AbstractContextManager[None]:
        return self.ledger.reporting(partial(self._refuse, place))

    def judge_text(self, place: _Place, *, is_bash: bool, depth: int, functions: dict[str, int] | None = None) -> None:
        with self.refusing(place), self.reporting(place):
            _check_characters(place.text)
            source = place.text.encode()
            if depth > _DEEPEST:
                raise RefusedError(0, len(source), "shells are nested too deeply", "write it in several lines")
            script = read_script(source.decode("latin-1"), is_bash=is_bash)
            check_agreement(source, script)
            if len(script.commands) > _MOST_COMMANDS:
                raise RefusedError(0, len(source), f"more than {_MOST_COMMANDS} commands", "write it in several parts")
            self._judge_script(script, _enter(place, script, depth, functions or {}))
            if depth == 0:
                self.ledger.check()

    def _judge_script(self, script: Script, room: _Room) -> None:
        for function in script.functions:
            with self.refusing(room.place):
                self._check_function(function.name)
        for assignment in script.assigned:
            with self.refusing(room.place):
                self.ledger.assign(assignment, (assignment.start, assignment.end))
        for arithmetic in script.arithmetic:
            self.ledger.compute(arithmetic, (arithmetic.start, arithmetic.end))
        for simple in script.commands:
            self._judge_simple(simple, room)

    def _check_function(self, name: Word) -> None:
        text = name.raw
        taken = text in programs.BUILTINS | programs.REFUSED_BUILTINS | programs.SHELLS or text in programs.WRAPPERS
        if taken or any(text == rule.program for rule in (*self._allow, *self._deny)) or text.endswith("_handle"):
            why = "a function with this name takes the place of a command"
            raise RefusedError(name.start, name.end, why, "choose another name")

    def _judge_simple(self, simple: Simple, room: _Room) -> None:
        for redirection in simple.redirections:
            with self.refusing(room.place):
                check_redirection(redirection)
        for assignment in simple.assignments:
            # `IFS= read` is how lines are read whole; it holds for that command alone.
            if assignment.name == "IFS" and simple.words and simple.words[0].raw == "read":
                continue
            with self.refusing(room.place):
                shown = (assignment.start, assignment.end)
                self.ledger.assign(assignment, shown, is_exported=bool(simple.words))
        if simple.words:
            with self.refusing(room.place):
                self.judge_words(simple.words, room)

    def judge_words(self, words: Sequence[Word], room: _Room) -> None:
        """Raises RefusedError."""
        head, arguments = words[0], list(words[1:])
        program = _known_program(head)
        if room.script and program in room.functions and head.start > room.functions[program]:
            return
        name = _known_name(program)
        resolved = resolve(name, arguments)
        self._check_denied(head, program, resolved, words)
        if room.script and program in programs.BUILTINS:
            check_builtin(program, arguments, self.ledger, (head.start, words[-1].end))
            self._judge_inside(program, arguments, room)
            return
        if program in programs.REFUSED_BUILTINS and room.script:
            self._check_spelled(program, arguments, words, "it changes what other commands mean, or runs a file")
            return
        self._check_allowed(program, name, arguments, resolved, words, room)
        if name in programs.SHELLS:
            self._judge_shell(program, name, arguments, words, room)
        else:
            self._judge_inside(name, arguments, room)
            if resolved.wrapper:
                inside = unwrap_by(f"{name} {resolved.subcommand}", resolved.wrapper, resolved.arguments[1:])
                self._judge_contents(inside, room)

    def _check_denied(self, head: Word, program: str, resolved: Resolved, words: Sequence[Word]) -> None:
        for rule in self._deny:
            is_meant = rule.denies(program, resolved.arguments, has_subcommand=resolved.is_certain)
            if not is_meant and rule.program == resolved.name and resolved.may_be_alias and len(rule.words) > 1:
                is_meant = True
            if is_meant:
                is_sure = all(word.text is not None for word in words) and not resolved.may_be_alias
                why = "this is denied" if is_sure else f"it may turn out to be {rule.text!r}, which is denied"
                remedy = f"remove {rule.text!r} from commands.deny" if is_sure else "write the words out"
                raise RefusedError(head.start, words[-1].end, why, remedy, rule.text)

    def _check_allowed(
        self,
        program: str,
        name: str,
        arguments: list[Word],
        resolved: Resolved,
        words: Sequence[Word],
        room: _Room,
    ) -> None:
        matching = self._matching(program, name, arguments, resolved, room)
        start, end = words[0].start, words[-1].end
        if not matching:
            raise RefusedError(start, end, *self._lack(program, name, arguments, resolved))
        opening = find_opening(name, resolved.before)
        if opening and not any(_spells(rule, program, arguments, opening.position) for rule in matching):
            raise RefusedError(
                start, end, opening.why, f"add a rule that spells it to commands.allow{_dashes(opening.why)}"
            )
        if resolved.subcommand is None:
            return
        opening = find_opening(f"{name} {resolved.subcommand}", resolved.arguments[1:])
        if opening and not any(_spells(rule, program, resolved.arguments, opening.position + 1) for rule in matching):
            raise RefusedError(
                start, end, opening.why, f"add a rule that spells it to commands.allow{_dashes(opening.why)}"
            )

    def _matching(self, program: str, name: str, arguments: list[Word], resolved: Resolved, room: _Room) -> list[Rule]:
        if program.startswith(".") and "/" in program and room.moves:
            return []
        found = [
            rule
            for rule in self._allow
            if rule.allows(program, arguments) or (resolved.is_certain and rule.allows(program, resolved.arguments))
        ]
        if name in programs.INTERPRETERS or name in programs.SHELLS or "/" in name:
            found = [rule for rule in found if rule.names_program]
        if resolved.runs_code:
            found = [rule for rule in found if rule.names_program and len(rule.words) > 1 and "*" not in rule.words[1]]
        return found

    def _lack(self, program: str, name: str, arguments: list[Word], resolved: Resolved) -> tuple[str, str]:
        rule = f"{program} {resolved.subcommand}" if resolved.subcommand else program
        if resolved.runs_code:
            return f"{rule} runs code that cannot be read here", f"add {rule!r} to commands.allow"
        if name in programs.INTERPRETERS or name in programs.SHELLS or "/" in name:
            return f"{program} runs code that cannot be read here", f"add {program!r} to commands.allow"
        if any(other.program == name for other in self._allow) and resolved.subcommand is None and arguments:
            return f"{program} is not allowed with these words", "put the sub-command first and write its words out"
        return f"{rule} is not allowed", f"add {rule!r} to commands.allow"

    def _check_spelled(self, program: str, arguments: list[Word], words: Sequence[Word], why: str) -> None:
        rules = [rule for rule in self._allow if rule.program == program and len(rule.words) > 1]
        if program not in _SPELLED_ONLY or not any(rule.allows(program, arguments) for rule in rules):
            remedy = "name the file in a rule of commands.allow" if program in _SPELLED_ONLY else "leave it out"
            raise RefusedError(words[0].start, words[-1].end, f"{program}: {why}", remedy)

    def _judge_shell(self, program: str, name: str, arguments: list[Word], words: Sequence[Word], room: _Room) -> None:
        if any(_spells(rule, program, arguments, 0) for rule in self._allow):
            return
        text = inner_text(name, arguments, (words[0].start, words[-1].end))
        if text is not None:
            is_bash = programs.READABLE_SHELLS[name]
            self.judge_text(room.place.inside(text, text.text or ""), is_bash=is_bash, depth=room.depth + 1)

    def _judge_inside(self, name: str, arguments: list[Word], room: _Room) -> None:
        if name == "eval":
            self._judge_joined(arguments, room, is_bash=True)
        elif name == "trap":
            if arguments and arguments[0].text not in ("-", "", "-l", "-p", "--"):
                self._judge_joined(arguments[:1], room, is_bash=True)
        else:
            self._judge_contents(unwrap(name, arguments), room, is_builtin=name in ("command", "builtin", "time"))

    def _judge_contents(self, inside: Inside, room: _Room, *, is_builtin: bool = False) -> None:
        for word in inside.assignments:
            found = _ASSIGNS.match(word.prefix)
            value = (known(found[2]),) if found and word.text is not None else ()
            assignment = Assignment(found[1] if found else word.prefix, value, word.start, word.end)
            self.ledger.assign(assignment, (word.start, word.end), is_exported=True)
        if inside.text is not None:
            self._judge_joined(inside.text, room, is_bash=False)
        for words in inside.commands:
            # A program starts programs; only the shell's own words can start the shell's own commands.
            inner = room if is_builtin else _Room(room.place, None, room.depth, moves=room.moves)
            if room.depth > _DEEPEST:
                raise RefusedError(words[0].start, words[-1].end, "commands are nested too deeply", "write it plainly")
            self.judge_words(words, inner)

    def _judge_joined(self, words: Sequence[Word], room: _Room, *, is_bash: bool) -> None:
        """Words that a shell gets as one text."""
        for word in words:
            if word.text is None:
                why = f"{word.raw} is put together while it runs and then read as code"
                raise RefusedError(word.start, word.end, why, "write it out")
        if words:
            text = " ".join(word.text or "" for word in words)
            functions = dict.fromkeys(room.functions, -1)
            place = room.place.inside(words[0], text)
            self.judge_text(place, is_bash=is_bash, depth=room.depth + 1, functions=functions)


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _enter(place: _Place, script: Script, depth: int, functions: dict[str, int]) -> _Room:
    settled = {function.name.raw: function.name.start for function in script.functions if function.is_settled}
    doubtful = {function.name.raw for function in script.functions if not function.is_settled}
    known_functions = {name: at for name, at in {**functions, **settled}.items() if name not in doubtful}
    moves = any(simple.words and simple.words[0].text in ("cd", "pushd", "popd") for simple in script.commands)
    return _Room(place, script, depth, known_functions, moves)


def _check_characters(text: str) -> None:
    data = text.encode("utf-8", "surrogatepass")
    if len(data) > _MOST_BYTES:
        raise RefusedError(0, 1, f"it is longer than {_MOST_BYTES} bytes", "put it into several parts")
    for number, char in enumerate(text):
        if not char.isprintable() and char not in "\n\t":
            at = len(text[:number].encode("utf-8", "surrogatepass"))
            end = at + len(char.encode("utf-8", "surrogatepass"))
            why = f"it has a control or invisible character (U+{ord(char):04X})"
            raise RefusedError(at, end, why, "remove it")


def _known_program(head: Word) -> str:
    if head.text is None:
        why = "the name of the command is put together while it runs, so that it cannot be judged"
        raise RefusedError(head.start, head.end, why, "write the command's name out")
    if _NAME.fullmatch(head.text) is None:
        why = "the name of the command is empty, or has letters that look like others"
        raise RefusedError(head.start, head.end, why, "use plain letters")
    if "/" in head.text and "/../" in f"/{head.text}/":
        raise RefusedError(head.start, head.end, "the command's path goes up with `..`", "write the plain path")
    return head.text


def _known_name(program: str) -> str:
    """By which the tables know it: python3.11 is python."""
    name = plain_name(program)
    found = _VERSIONED.fullmatch(name)
    return found[1] if found else name


def _spells(rule: Rule, program: str, arguments: Sequence[Word], position: int) -> bool:
    """Whether the rule has a word of its own for the one at that place."""
    if len(rule.words) <= position + 1 or rule.words[position + 1] == "*" or not rule.names_program:
        return False
    return rule.allows(program, arguments)


def _dashes(why: str) -> str:
    return ", or write -- or ./ before it" if "may turn out" in why else ""
