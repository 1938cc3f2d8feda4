"""Which word of a command is its sub-command: `git -C /x push` is `git push`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fumehood.policy.commands.programs import FAMILIES, RUNNING_SUBCOMMANDS, SUBCOMMAND_WRAPPERS, Wrapper
from fumehood.policy.commands.tools import TOOLS, WITH_SUBCOMMANDS
from fumehood.policy.commands.words import Word


@dataclass(frozen=True, slots=True)
class Resolved:
    name: str
    subcommand: str | None
    before: list[Word]
    """The program's own options; all its words, if it has no sub-commands."""
    arguments: list[Word]
    """From the sub-command on, where that is certain."""
    is_certain: bool = False

    @property
    def may_be_alias(self) -> bool:
        """A name that the program does not have itself may stand for any of those that it has."""
        family = FAMILIES.get(self.name)
        return bool(family and family.known and self.subcommand and self.subcommand not in family.known)

    @property
    def runs_code(self) -> bool:
        """Or may, for all that is known."""
        if self.subcommand is None:
            return False
        is_known = self.name not in WITH_SUBCOMMANDS or f"{self.name} {self.subcommand}" in TOOLS
        return not is_known or self.subcommand in RUNNING_SUBCOMMANDS.get(self.name, ())

    @property
    def wrapper(self) -> Wrapper | None:
        return SUBCOMMAND_WRAPPERS.get(f"{self.name} {self.subcommand}")


def resolve(name: str, arguments: Sequence[Word]) -> Resolved:
    family, everything = FAMILIES.get(name), list(arguments)
    if family is None:
        return Resolved(name, None, everything, everything)
    place = 0
    while place < len(everything):
        text = everything[place].text
        if text is None:
            return Resolved(name, None, everything, everything)
        if not text.startswith("-"):
            return Resolved(name, text, everything[:place], everything[place:], is_certain=True)
        option, has_value, _ = text.partition("=")
        if text in family.valued:
            place += 2
            if place <= len(everything) and everything[place - 1].is_many:
                return Resolved(name, None, everything, everything)
        elif text in family.flags or (has_value and option in family.valued):
            place += 1
        else:
            return Resolved(name, None, everything, everything)
    return Resolved(name, None, everything, [], is_certain=True)
