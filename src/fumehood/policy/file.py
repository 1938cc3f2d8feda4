"""A policy together with the file it stands in, so that a rule can be found there."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Self, cast

from fumehood.policy.model import Policy
from fumehood.policy.paths import check_target
from fumehood.policy.source import Path, PolicySource, dotted, parse, read_file, visible

# Lists that the model keeps in an order of its own; an entry is known by what it says, not by its number.
_MOUNTS: Path = ("filesystem", "mounts")
_COMMANDS: tuple[Path, ...] = (("commands", "allow"), ("commands", "deny"))


@dataclass(frozen=True)
class PolicyFile:
    name: str
    """The file's name, with invisible characters escaped."""
    policy: Policy
    lines: Mapping[str, int]
    """The line of each key, as rulings and findings spell it: `network.allow[0]`, `filesystem.mounts[/data]`."""

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        name, base = os.fspath(path), os.path.dirname(os.path.abspath(path))
        data, source = parse(read_file(path), name=name, base=base)
        policy = Policy.model_validate(data, context=source)
        return cls(visible(name), policy, {**_numbered(source), **dict(_named(data, source))})

    def line_of(self, key: str) -> int | None:
        """None for what the file does not say, which is the default."""
        return self.lines.get(key)

    def place_of(self, key: str) -> str:
        """The key and where it stands, such as `network.allow[0] (web.yaml:7)`."""
        line = self.line_of(key)
        return f"{key} (not in {self.name})" if line is None else f"{key} ({self.name}:{line})"


def _numbered(source: PolicySource) -> dict[str, int]:
    return {dotted(path): line for path, line in source.lines.items()}


def _named(data: Mapping[str, object], source: PolicySource) -> Iterator[tuple[str, int]]:
    for index, mount in enumerate(_list(data, _MOUNTS)):
        target = cast("Mapping[str, str]", mount)["target"]
        yield f"{dotted(_MOUNTS)}[{check_target(target)}]", source.lines[*_MOUNTS, index]
    for place in _COMMANDS:
        for index, rule in enumerate(_list(data, place)):
            yield f"{dotted(place)}[{rule}]", source.lines[*place, index]


def _list(data: Mapping[str, object], place: Path) -> list[object]:
    """The list at a place of validated data; empty if it is absent."""
    found: object = data
    for key in place:
        found = cast("Mapping[object, object]", found).get(key, {})
    return cast("list[object]", found) if isinstance(found, list) else []
