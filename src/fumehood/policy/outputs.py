"""Which files may leave: the patterns of `filesystem.outputs`. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from fumehood.policy.globs import PathGlob


class Outputs:
    def __init__(self, patterns: Iterable[str]) -> None:
        self.patterns = tuple(patterns)
        self._globs = [PathGlob(pattern) for pattern in self.patterns]

    def match(self, path: str) -> bool:
        """May the file at this path, below the workspace, leave?"""
        return any(glob.accepts(path) for glob in self._globs)

    def reach(self, folder: str) -> bool:
        """Could anything below this folder match? The empty path is the workspace."""
        return any(glob.goes_on_below(folder) for glob in self._globs)

    @property
    def ask_for_git(self) -> bool:
        """Version control folders run code when tools look at them, so they have to be named."""
        return any(".git" in pattern.split("/") for pattern in self.patterns)
