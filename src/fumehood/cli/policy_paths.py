"""The paths that a policy names, whatever key they stand in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from fumehood.policy import Policy


def paths_in(policy: Policy) -> Iterator[str]:
    """Every text in it that could be a path; those of the host are absolute by now."""
    return _paths(policy.model_dump())


def _paths(value: object) -> Iterator[str]:
    match value:
        case str() if value.startswith("/"):
            yield value
        case dict():
            yield from (path for each in cast("dict[str, object]", value).values() for path in _paths(each))
        case list() | tuple():
            yield from (path for each in cast("Sequence[object]", value) for path in _paths(each))
        case _:
            pass
