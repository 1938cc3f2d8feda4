"""Which files of a project stay out: rules as in `.gitignore`, and those that hold for every project.

Git itself is not asked: in a folder that strangers wrote, its configuration can name programs that it starts.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from fumehood.errors import UsageError
from fumehood.host.folder_tree import Names

FILES = (".gitignore", ".hoodignore")
"""In the order in which they count: the last rule that matches decides."""
MAX_FILE_BYTES = 64 * 1024
_MOST_RULES = 2000
# A name has at most 255 bytes; what stands for many names takes long to compile.
_MOST_CHARACTERS, _MOST_WILDCARDS = 1000, 32
_WILDCARD = re.compile(r"[*?\[]")
# Histories and what keeps secrets. The rules of a folder may be those of a stranger, so none of them brings these in.
_NEVER = """
.git
.hg
.svn
.env
.env.*
.envrc
.netrc
.pgpass
.pypirc
.ssh
.aws
.gnupg
"""
_USUALLY_NOT = """
.venv/
venv/
node_modules/
__pycache__/
*.pyc
"""
_ANY_DEPTH = "**"


@dataclass(frozen=True, slots=True)
class _Rule:
    number: int
    """Its place among all rules of a project."""
    folder: Names
    """Where the file with the rule lies: it is for what is below."""
    segments: tuple[str | re.Pattern[str] | None, ...]
    """One for each name of a path: the name itself, or a pattern; None stands for any number of names."""
    only_folders: bool
    is_negated: bool

    def matches(self, place: Names, *, is_folder: bool) -> bool:
        if (self.only_folders and not is_folder) or not _fits(self.segments[-1], place[-1]):
            return False
        below = place[len(self.folder) :]
        return place[: len(self.folder)] == self.folder and self._accepts(below)

    def _accepts(self, names: Names) -> bool:
        """All ways to match at once, so that no rule takes longer than it and the path are long."""
        states = self._with_skipped({0})
        for name in names:
            states = self._with_skipped({after for state in states for after in self._step(state, name)})
        return len(self.segments) in states

    def _step(self, state: int, name: str) -> tuple[int, ...]:
        if state == len(self.segments):
            return ()
        segment = self.segments[state]
        if segment is None:
            # At the end of a rule, as in `out/**`, it stands for something.
            return (state, state + 1) if state + 1 == len(self.segments) else (state,)
        return (state + 1,) if _fits(segment, name) else ()

    def _with_skipped(self, states: set[int]) -> set[int]:
        """With the states behind each `**`, which may stand for nothing if something follows."""
        reached, last = set(states), len(self.segments) - 1
        for state in range(last):
            if state in reached and self.segments[state] is None:
                reached.add(state + 1)
        return reached


class _RuleSet:
    """Rules in their order. Those whose last name is plain are found by it: most are, and a project has many files."""

    def __init__(self, rules: Sequence[_Rule]) -> None:
        self.rules = rules
        self._by_name: dict[str, list[_Rule]] = {}
        self._others: list[_Rule] = []
        for rule in rules:
            name = rule.segments[-1]
            (self._by_name.setdefault(name, []) if isinstance(name, str) else self._others).append(rule)

    def last_match(self, place: Names, *, is_folder: bool) -> _Rule | None:
        found: _Rule | None = None
        for rules in (self._by_name.get(place[-1], ()), self._others):
            for rule in reversed(rules):
                if found is not None and found.number > rule.number:
                    break
                if rule.matches(place, is_folder=is_folder):
                    found = rule
                    break
        return found


class IgnoreRules:
    def __init__(self, rules: Sequence[_Rule], never: Sequence[_Rule] = ()) -> None:
        """What `never` names stays out whatever `rules` say."""
        self._rules, self._never = _RuleSet(rules), _RuleSet(never)

    @classmethod
    def default(cls) -> Self:
        return cls((), _parse_all((), _NEVER)).with_file((), _USUALLY_NOT)

    def with_file(self, folder: Names, text: str) -> Self:
        """With the rules of a file in this folder on top."""
        before = self._rules.rules
        added = _parse_all(folder, text, before[-1].number + 1 if before else 0)
        if len(before) + len(added) > _MOST_RULES:
            raise UsageError(f"the project has more than {_MOST_RULES} rules in {' and '.join(FILES)}; use fewer")
        return type(self)((*before, *added), self._never.rules) if added else self

    def leave_out(self, place: Names, *, is_folder: bool) -> bool:
        if self._never.last_match(place, is_folder=is_folder):
            return True
        rule = self._rules.last_match(place, is_folder=is_folder)
        return rule is not None and not rule.is_negated


def _fits(segment: str | re.Pattern[str] | None, name: str) -> bool:
    if isinstance(segment, str):
        return segment == name
    return segment is None or segment.match(name) is not None


def _parse_all(folder: Names, text: str, first: int = 0) -> tuple[_Rule, ...]:
    return tuple(rule for number, line in enumerate(text.splitlines(), first) if (rule := _parse(number, folder, line)))


def _file_in(folder: Names) -> str:
    return f"{' or '.join(FILES)} in {'/'.join(folder) or 'the project'!r}"


def _parse(number: int, folder: Names, line: str) -> _Rule | None:
    text = line.rstrip(" \t")
    if not text or text.startswith("#"):
        return None
    is_negated = text.startswith("!")
    text = text.removeprefix("!").replace("\\", "")
    bare = text.strip("/")
    if not bare:
        return None
    parts = bare.split("/")
    if "/" not in text.rstrip("/"):
        parts = [_ANY_DEPTH, *parts]
    _check_cost(folder, parts)
    return _Rule(number, folder, tuple(map(_segment, parts)), text.endswith("/"), is_negated)


def _segment(part: str) -> str | re.Pattern[str] | None:
    if part == _ANY_DEPTH:
        return None
    return re.compile(fnmatch.translate(part)) if _WILDCARD.search(part) else part


def _check_cost(folder: Names, parts: list[str]) -> None:
    """Before a rule is compiled."""
    wildcards = sum(len(_WILDCARD.findall(part)) for part in parts if part != _ANY_DEPTH)
    if sum(map(len, parts)) > _MOST_CHARACTERS or wildcards > _MOST_WILDCARDS:
        raise UsageError(
            f"{_file_in(folder)} has the rule {'/'.join(parts)[:40]!r}...: one has at most {_MOST_CHARACTERS} "
            f"characters, and {_MOST_WILDCARDS} of them are *, ? or ["
        )
