"""Redirections that do more than they look: open a connection, or write a file that was opened to be read.

Bash takes /dev/tcp/host/port for a connection, wherever the name comes from.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from fumehood.policy.commands.decision import RefusalError
from fumehood.policy.commands.syntax import Hole, Redirection, SimpleCommand, Word
from fumehood.policy.commands.variables import VariableTracker

_NETWORK = ("/dev/tcp/", "/dev/udp/")
_DEEPEST = 24
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class ConnectionCheck:
    """Checks whether redirections of one script, whose variables are `names`, may open a connection."""

    def __init__(self, names: VariableTracker) -> None:
        self._names = names
        self._harmless: dict[tuple[str, bool], bool] = {}
        self._depth = 0

    def check(self, redirection: Redirection) -> None:
        """Raises RefusalError. What is written has to be a plain file anyway."""
        target = redirection.target
        if target is None or redirection.operator == "<<<" or not self.may_open(target):
            return
        shown = (redirection.start, redirection.end)
        if target.text is None and redirection.operator == "<":
            why = "it cannot be known that this is a file, and no network connection"
            raise RefusalError(*shown, why, "write ./ before it, or set it in the line, or give it to a program")
        if (target.text or target.prefix).startswith(_NETWORK):
            raise RefusalError(*shown, "the shell would open a network connection", "use a program that is allowed")

    def may_open(self, word: Word, *, is_all: bool = True) -> bool:
        """By how it begins. Any variable may be nothing at all, and then the next piece is the beginning.

        Where nothing is put behind it, a glob is a file that was found, or stays as it is.
        """
        for number, piece in enumerate(word.pieces, 1):
            following = word.pieces[number] if number < len(word.pieces) else None
            if isinstance(piece, str):
                is_found = is_all and isinstance(following, Hole) and following.is_glob
                return piece.startswith(_NETWORK) if is_found else any(_agree(piece, place) for place in _NETWORK)
            if not self._begins_elsewhere(piece, is_all=is_all and following is None):
                return True
        return False

    def _begins_elsewhere(self, hole: Hole, *, is_all: bool) -> bool:
        if hole.is_plain or hole.is_number or hole.is_glob or hole.is_home:
            return True
        if hole.name is None or _NAME.fullmatch(hole.name) is None:
            return False
        asked = (hole.name, is_all)
        if asked not in self._harmless and self._depth < _DEEPEST:
            self._harmless[asked] = False  # while it is asked: for one that is made of itself
            self._depth += 1
            values = self._names.values_of(hole.name)
            may_open = values is None or any(self.may_open(value, is_all=is_all) for value in values)
            self._harmless[asked] = not may_open
            self._depth -= 1
        return self._harmless.get(asked, False)


def _agree(piece: str, place: str) -> bool:
    """Whether both are equal up to the end of the shorter one."""
    return place.startswith(piece[: len(place)])


def readable_descriptors(commands: Sequence[SimpleCommand], outer: frozenset[int]) -> frozenset[int]:
    """Those by which a file that is read may be open: /dev/fd/3 would open it once more, to write."""
    redirections = [redirection for simple in commands for redirection in simple.redirections]
    found = outer | {redirection.descriptor for redirection in redirections if redirection.operator == "<"}
    copies = [(redirection.descriptor, redirection.copied) for redirection in redirections]
    for _ in range(10):  # a descriptor has one digit
        found |= {descriptor for descriptor, copied in copies if copied in found}
    return found


def check_descriptor(redirection: Redirection, readable: frozenset[int]) -> None:
    """Raises RefusalError where standard output or error would be a file that is read."""
    number, shown = redirection.descriptor, (redirection.start, redirection.end)
    is_read = redirection.operator == "<" or redirection.copied in readable
    if number in (1, 2) and is_read:
        raise RefusalError(*shown, f"descriptor {number} would be a file that is read", "use > for what is written")
