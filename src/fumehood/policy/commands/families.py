"""Words of compilers, and of programs whose sub-commands are not all known: is each known to be harmless?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fumehood.policy.commands.made_files import OF_COMPILERS
from fumehood.policy.commands.programs import FAMILIES
from fumehood.policy.commands.syntax import GLOB, Word, joined
from fumehood.policy.commands.tools import TOOLS, is_option_of_compiler
from fumehood.policy.commands.write_targets import WriteTargets

PLAIN_FILE = "write the name of the file out, and ./ before it if it begins with - or @"
FIX = "leave it out, or add a rule that spells it to commands.allow: {!r}"
_WITHOUT_FILES = frozenset({"-E", "-M", "-MM", "-fsyntax-only", "--version", "-dumpversion", "-v"})


@dataclass(frozen=True, slots=True)
class UnsafeWord:
    """One word that is not known to be harmless. A rule that spells `option` allows it."""

    position: int
    option: str
    why: str
    fix: str


def find_unsafe_word_of_family(name: str, arguments: Sequence[Word], granted: frozenset[str]) -> UnsafeWord | None:
    """A program whose sub-commands are not known takes its own options after one of those too."""
    program = name.partition(" ")[0]
    if program not in FAMILIES:
        return None
    tool, family = TOOLS[program], FAMILIES[program]
    refused = (family.valued | family.flags) - tool.flags - tool.takes_value - granted
    for position, word in enumerate(arguments):
        if word.text == "--":
            return None
        if word.text is None and word.may_be_option:
            why = f"{word.raw} may turn out to be an option of {program}, and not all of those are harmless"
            return UnsafeWord(position, "", why, "write -- before it, or set it to a plain word in the line itself")
        if found := _taken(word.text or "", refused, tool.flags | tool.takes_value):
            why = f"{found} of {program} is not known to be harmless"
            return UnsafeWord(position, found, why, FIX.format(f"{name} {found}"))
    return None


def _taken(text: str, options: frozenset[str], harmless: set[str]) -> str | None:
    """The option that a word gives, alone, with a value, as a letter among others, or by the beginning of its name."""
    if not text.startswith("-") or text == "-":
        return None
    if text.startswith("--"):
        name = text.partition("=")[0]
        return None if name in harmless else next((found for found in sorted(options) if found.startswith(name)), None)
    return next((f"-{letter}" for letter in text[1:] if f"-{letter}" in options), None)


def find_unsafe_word_of_compiler(
    name: str, arguments: Sequence[Word], targets: WriteTargets, granted: frozenset[str]
) -> UnsafeWord | None:
    for position, word in enumerate(arguments):
        before = arguments[position - 1].text if position else None
        if before == "-o":
            # It may be taken for the value of the option before it, and what follows for options.
            if word.is_many or word.may_be_option or word.may_begin_with("@"):
                return UnsafeWord(
                    position, "", f"{name} may take {word.raw} for options instead of the file to write", PLAIN_FILE
                )
            if found := targets.problem(word):
                return UnsafeWord(position, "", *found)
        elif word.text == "-o" or word.text in granted:
            continue
        elif word.may_be_option and not (word.text is not None and is_option_of_compiler(word.text)):
            why = f"{word.raw} is not known to be a harmless option of {name}"
            fix = FIX.format(f"{name} {word.text}") if word.text else "write it out"
            return UnsafeWord(position, word.text or "", why, fix)
        elif word.may_begin_with("@"):
            return UnsafeWord(position, "", f"{name} reads options from {word.raw}", "write them out")
    return _made_by_compiler(name, arguments, targets)


def _made_by_compiler(name: str, arguments: Sequence[Word], targets: WriteTargets) -> UnsafeWord | None:
    """Without -o they make files in the folder where they run, and more beside that of -o."""
    given, position = {word.text for word in arguments}, max(len(arguments) - 1, 0)
    if not given & (_WITHOUT_FILES | {"-o"}) and (found := targets.problem_of_here()):
        return UnsafeWord(position, "", *found)
    made = OF_COMPILERS if given & {"-o", "-c", "-S", "-E"} else OF_COMPILERS | {"a.out"}
    if any(targets.may_be_program(_pattern(text)) for text in made):
        return UnsafeWord(position, "", f"{name} may make the file that a rule lets be run", "add -o and another name")
    return None


def _pattern(text: str) -> Word:
    """`*.o` is any file of that ending."""
    return Word(joined([GLOB, text.removeprefix("*")] if text.startswith("*") else [text]), 0, 0, text)
