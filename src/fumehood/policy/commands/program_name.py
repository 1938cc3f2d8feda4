"""Which program a command names, and which of its words is the sub-command: `git -C /x push` is `git push`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from fumehood.policy.commands.decision import RefusalError
from fumehood.policy.commands.harmless_subcommands import HARMLESS_SUBCOMMANDS, is_harmless
from fumehood.policy.commands.programs import (
    AWK,
    FAMILIES,
    SED,
    SUBCOMMAND_WRAPPERS,
    WRAPPERS,
    WrapperOptions,
)
from fumehood.policy.commands.rules import plain_name
from fumehood.policy.commands.syntax import Word
from fumehood.policy.commands.tools import COMPILERS, TOOLS

_MOST_BYTES = 16 * 1024
_NAME = re.compile(r"[!-~]+")
_VERSIONED = re.compile(r"(python|perl|ruby|lua|php|node|pip|gcc|g\+\+|clang)[0-9.-]+")
# Of families without a line for each sub-command, only a few options are known: these have to be named.
_KNOWN = frozenset({*TOOLS, *COMPILERS, *WRAPPERS, *AWK, *SED, "find"}) - HARMLESS_SUBCOMMANDS.keys()


def check_characters(text: str) -> None:
    data = text.encode("utf-8", "surrogatepass")
    if len(data) > _MOST_BYTES:
        raise RefusalError(0, 1, f"it is longer than {_MOST_BYTES} bytes", "put it into a file or several lines")
    for number, char in enumerate(text):
        if not char.isprintable() and char not in "\n\t":
            at = len(text[:number].encode("utf-8", "surrogatepass"))
            end = at + len(char.encode("utf-8", "surrogatepass"))
            why = f"it has a control or invisible character (U+{ord(char):04X})"
            raise RefusalError(at, end, why, "remove it")


def known_program(head: Word) -> str:
    if head.text is None:
        why = "the name of the command is put together while it runs, so that it cannot be judged"
        raise RefusalError(head.start, head.end, why, "write the command's name out")
    if _NAME.fullmatch(head.text) is None:
        why = "the name of the command is empty, or has letters that look like others"
        raise RefusalError(head.start, head.end, why, "use plain letters")
    if "/" in head.text and "/../" in f"/{head.text}/":
        raise RefusalError(head.start, head.end, "the command's path goes up with `..`", "write the plain path")
    return head.text


def known_name(program: str) -> str:
    """The program's name in the tables: python for python3.11."""
    name = plain_name(program)
    found = _VERSIONED.fullmatch(name)
    return found[1] if found else name


def is_known_tool(name: str) -> bool:
    """Whether it is known which of its words are harmless, or which command is inside of it."""
    return name in _KNOWN


@dataclass(frozen=True, slots=True)
class ResolvedCommand:
    name: str
    subcommand: str | None
    before: list[Word]
    """The program's own options; all its words, if it has no sub-commands."""
    arguments: list[Word]
    """The arguments, from the sub-command on where that is certain."""
    is_certain: bool = False

    @property
    def may_be_alias(self) -> bool:
        """A name that the program does not have itself may stand for any of those that it has."""
        family = FAMILIES.get(self.name)
        return bool(family and family.known and self.subcommand and self.subcommand not in family.known)

    @property
    def runs_code(self) -> bool:
        """Whether it runs code, or may do so."""
        if self.subcommand is None:
            return False
        return self.tool not in TOOLS and not is_harmless(self.name, self.subcommand, self.following)

    @property
    def following(self) -> str | None:
        """The word after the sub-command."""
        return self.arguments[1].text if len(self.arguments) > 1 else None

    @property
    def tool(self) -> str:
        """By which the table knows it: the sub-command, or one of that, `git remote get-url`."""
        longest = f"{self.name} {self.subcommand} {self.following}"
        return longest if longest in TOOLS else f"{self.name} {self.subcommand}"

    @property
    def wrapper(self) -> WrapperOptions | None:
        return SUBCOMMAND_WRAPPERS.get(f"{self.name} {self.subcommand}")


def resolve(name: str, arguments: Sequence[Word]) -> ResolvedCommand:
    family, everything = FAMILIES.get(name), list(arguments)
    if family is None:
        return ResolvedCommand(name, None, everything, everything)
    place = 0
    while place < len(everything):
        text = everything[place].text
        if text is None:
            return ResolvedCommand(name, None, everything, everything)
        if not text.startswith("-"):
            return ResolvedCommand(name, text, everything[:place], everything[place:], is_certain=True)
        option, has_value, _ = text.partition("=")
        if text in family.valued:
            place += 2
            if place <= len(everything) and everything[place - 1].is_many:
                return ResolvedCommand(name, None, everything, everything)
        elif text in family.flags or (has_value and option in family.valued):
            place += 1
        else:
            return ResolvedCommand(name, None, everything, everything)
    return ResolvedCommand(name, None, everything, [], is_certain=True)
