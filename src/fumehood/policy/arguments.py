"""Policies and durations as callers give them to functions: in every form that there is, checked in one place."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import overload

from fumehood.errors import PolicyError, UsageError
from fumehood.policy.model import Policy
from fumehood.policy.quantities import parse_duration, parse_size

AnyPolicy = Policy | Mapping[str, object] | str | os.PathLike[str]
"""A policy, its sections as a mapping, the path of its file, or the name of one that comes with the package."""
Seconds = float | str
Bytes = int | str
"""A number of seconds, or a duration as policies spell it: `500ms`, `30s`, `2m`, `1h`."""


@overload
def read_policy(policy: None, argument: str = "policy") -> None: ...


@overload
def read_policy(policy: AnyPolicy, argument: str = "policy") -> Policy: ...


@overload
def read_policy(policy: AnyPolicy | None, argument: str = "policy") -> Policy | None: ...


def read_policy(policy: AnyPolicy | None, argument: str = "policy") -> Policy | None:
    """The policy; None stays None, since each caller has its own default. UsageError names the `argument`."""
    match policy:
        case None | Policy():
            return policy
        case Mapping():
            return Policy.model_validate(dict(policy))
        case str() if "\n" in policy:
            raise UsageError(f"{argument} is the text of a policy, not the path of a file; use Policy.loads(text)")
        case str():
            from fumehood.policy.named import file_of

            return Policy.load(file_of(policy, argument))
        case os.PathLike():
            return Policy.load(policy)
        case _:
            kind = type(policy).__name__
            raise UsageError(
                f"{argument} must be a Policy, a mapping, the path of a policy file or the name of one; this is {kind}"
            )


def add_packages(policy: Policy, packages: Sequence[str], argument: str = "packages") -> Policy:
    """The policy with more packages. UsageError names the `argument`."""
    if isinstance(packages, str) or not isinstance(packages, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"{argument} {packages!r} must be a list of packages, such as ['pandas', 'numpy==2.*']")
    if not packages:
        return policy
    try:
        return policy.override({"environment": {"packages": [*policy.environment.packages, *packages]}})
    except PolicyError as error:
        problems = "; ".join(problem.partition(": ")[2] for problem in error.problems)
        raise UsageError(f"{argument}: {problems}") from None


def read_seconds(value: Seconds, argument: str = "timeout") -> float:
    """Seconds. UsageError names the `argument`."""
    try:
        return parse_duration(value)
    except ValueError as error:
        raise UsageError(f"{argument} {value!r} is not valid: {error}") from None


def read_size(value: Bytes, argument: str) -> int:
    """Bytes. UsageError names the `argument`."""
    try:
        return parse_size(value)
    except ValueError as error:
        raise UsageError(f"{argument} {value!r} is not valid: {error}") from None
