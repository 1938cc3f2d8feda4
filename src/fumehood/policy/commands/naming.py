"""Which characters a line may have, and which program its commands name."""

from __future__ import annotations

import re

from fumehood.policy.commands.programs import AWK, FAMILIES, SED, WRAPPERS
from fumehood.policy.commands.rules import plain_name
from fumehood.policy.commands.tools import COMPILERS, TOOLS, WITH_SUBCOMMANDS
from fumehood.policy.commands.verdict import RefusedError
from fumehood.policy.commands.words import Word

_MOST_BYTES = 16 * 1024
_NAME = re.compile(r"[!-~]+")
_VERSIONED = re.compile(r"(python|perl|ruby|lua|php|node|pip|gcc|g\+\+|clang)[0-9.-]+")
# Of families without a line for each sub-command, only a few options are known.
_KNOWN = frozenset({*TOOLS, *COMPILERS, *WRAPPERS, *AWK, *SED, "find"}) - (FAMILIES.keys() - WITH_SUBCOMMANDS)


def check_characters(text: str) -> None:
    data = text.encode("utf-8", "surrogatepass")
    if len(data) > _MOST_BYTES:
        raise RefusedError(0, 1, f"it is longer than {_MOST_BYTES} bytes", "put it into a file or several lines")
    for number, char in enumerate(text):
        if not char.isprintable() and char not in "\n\t":
            at = len(text[:number].encode("utf-8", "surrogatepass"))
            end = at + len(char.encode("utf-8", "surrogatepass"))
            why = f"it has a control or invisible character (U+{ord(char):04X})"
            raise RefusedError(at, end, why, "remove it")


def known_program(head: Word) -> str:
    if head.text is None:
        why = "the name of the command is put together while it runs, so that it cannot be judged"
        raise RefusedError(head.start, head.end, why, "write the command's name out")
    if _NAME.fullmatch(head.text) is None:
        why = "the name of the command is empty, or has letters that look like others"
        raise RefusedError(head.start, head.end, why, "use plain letters")
    if "/" in head.text and "/../" in f"/{head.text}/":
        raise RefusedError(head.start, head.end, "the command's path goes up with `..`", "write the plain path")
    return head.text


def known_name(program: str) -> str:
    """By which the tables know it: python3.11 is python."""
    name = plain_name(program)
    found = _VERSIONED.fullmatch(name)
    return found[1] if found else name


def is_known_tool(name: str) -> bool:
    """Whether it is known which of its words are harmless, or which command is inside of it."""
    return name in _KNOWN
