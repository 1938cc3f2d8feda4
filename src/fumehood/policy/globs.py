"""Patterns of paths, matched name by name. Pure, and linear in the path.

`*`, `?` and `[...]` stand for characters of one name, hidden names included; `**` stands for any number of folders, and
at the end for everything below.
"""

from __future__ import annotations

import fnmatch
import re

_ANY_DEPTH = "**"


class PathGlob:
    """Follows all readings of one pattern at once; a state is the number of its parts that are behind us."""

    def __init__(self, pattern: str) -> None:
        parts = pattern.split("/")
        self._end = len(parts)
        self._parts = [None if part == _ANY_DEPTH else re.compile(fnmatch.translate(part)) for part in parts]

    def accepts(self, path: str) -> bool:
        return self._end in self._states_after(path)

    def goes_on_below(self, folder: str) -> bool:
        return any(state < self._end for state in self._states_after(folder))

    def _states_after(self, path: str) -> set[int]:
        states = self._with_skipped({0})
        for name in path.split("/") if path else ():
            states = self._with_skipped({after for state in states for after in self._step(state, name)})
            if not states:
                break
        return states

    def _step(self, state: int, name: str) -> tuple[int, ...]:
        if state == self._end:
            return ()
        part = self._parts[state]
        if part is not None:
            return (state + 1,) if part.match(name) else ()
        return (state, self._end) if state + 1 == self._end else (state,)

    def _with_skipped(self, states: set[int]) -> set[int]:
        """`**` may stand for no folder at all, but at the end for at least one name."""
        complete = set(states)
        for state in range(self._end - 1):
            if state in complete and self._parts[state] is None:
                complete.add(state + 1)
        return complete
