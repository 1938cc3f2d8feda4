"""What is done to texts on their way to and from a model."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal, Self

from pydantic import field_validator, model_validator

from fumehood.policy.paths import HostPath
from fumehood.policy.quantities import Size
from fumehood.policy.secret import Variable
from fumehood.policy.section import Ordered, Section, Text

Reaction = Literal["off", "flag", "strip", "block"]
"""What to do with a find: nothing, only record it, take it out, or withhold the whole text."""


class CanarySource(Section):
    """A value that nobody has a reason to send: seeing it is an alarm. Where its value is found on the host."""

    name: Text
    from_env: Variable | None = None
    from_file: HostPath | None = None

    @model_validator(mode="after")
    def _require_one_origin(self) -> Self:
        if (self.from_env is None) == (self.from_file is None):
            raise ValueError("needs exactly one of from_env and from_file")
        return self


class Filters(Section):
    """Values of the policy's `secrets`, and of canaries, are never passed on; `block` withholds the whole text.

    `host_paths`, `credentials` and `network` are about what a text asks for: places of the host that hold its accounts
    or keys, the names of credentials, and hosts that `network.allow` does not open.
    """

    secrets: Literal["strip", "block"] = "strip"
    tokens: Reaction = "strip"
    canaries: Ordered[CanarySource] = ()
    on_canary: Literal["strip", "block"] = "block"
    invisible: Literal["off", "strip"] = "strip"
    host_paths: Reaction = "flag"
    credentials: Reaction = "flag"
    network: Reaction = "flag"
    size: Size = 256 * 1024

    @field_validator("canaries")
    @classmethod
    def _keep_canaries_apart(cls, canaries: tuple[CanarySource, ...]) -> tuple[CanarySource, ...]:
        ordered = sorted(canaries, key=lambda canary: canary.name)
        for first, second in pairwise(ordered):
            if first.name == second.name:
                raise ValueError(f"two canaries have the name {first.name}; give each its own")
        return tuple(ordered)
