"""Which files may leave: the patterns of `filesystem.outputs`. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from fumehood.policy.globs import PathGlob


class Outputs:
    def __init__(self, patterns: Iterable[str]) -> None:
        self.patterns = tuple(patterns)
        # Apart, because `**` means everything in the workspace and nothing outside of it.
        self._globs = {
            is_absolute: [PathGlob(pattern) for pattern in self.patterns if pattern.startswith("/") == is_absolute]
            for is_absolute in (False, True)
        }

    def match(self, path: str) -> bool:
        """May the file at this path leave? Relative to the workspace, or absolute."""
        return any(glob.accepts(path) for glob in self._globs[path.startswith("/")])

    def reach(self, folder: str) -> bool:
        """Could anything below this folder match? The empty path is the workspace."""
        return any(glob.goes_on_below(folder) for glob in self._globs[folder.startswith("/")])

    @property
    def ask_for_git(self) -> bool:
        """Version control folders run code when tools look at them, so they have to be named."""
        return any(".git" in pattern.split("/") for pattern in self.patterns)
