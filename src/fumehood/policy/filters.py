"""What is done to texts on their way to and from a model."""

from __future__ import annotations

from itertools import pairwise
from typing import ClassVar, Literal

from pydantic import Field, field_validator

from fumehood.policy.quantities import Size
from fumehood.policy.secret import HostValue
from fumehood.policy.section import Ordered, Section

Reaction = Literal["off", "flag", "strip", "block"]
"""What to do with a find: nothing, only record it, take it out, or withhold the whole text."""


class CanarySource(HostValue):
    """A value that no program has a reason to send: seeing it is an alarm. Where its value is found on the host."""

    kind: ClassVar[str] = "canary"


class Filters(Section):
    """Values of the policy's `secrets`, and of canaries, are never passed on; `block` withholds the whole text.

    `host_paths`, `credentials` and `network` are about what a text asks for: places of the host that hold its accounts
    or keys, the names of credentials, and hosts that `network.allow` does not open.
    """

    secrets: Literal["strip", "block"] = Field(
        default="strip",
        description="What happens to the value of a secret: it is taken out, or the whole text is withheld.",
    )
    tokens: Reaction = Field(
        default="strip", description="What happens to texts that look like a token of a known service."
    )
    canaries: Ordered[CanarySource] = Field(
        default=(), description="Values that no program has a reason to send; seeing one is an alarm."
    )
    on_canary: Literal["strip", "block"] = Field(default="block", description="What happens to a text with a canary.")
    invisible: Literal["off", "strip"] = Field(
        default="strip", description="What happens to invisible characters and hidden text."
    )
    host_paths: Reaction = Field(
        default="flag", description="What happens to texts that ask for places of the host with accounts or keys."
    )
    credentials: Reaction = Field(
        default="flag", description="What happens to texts that ask for credentials by their names."
    )
    network: Reaction = Field(
        default="flag", description="What happens to texts that name hosts which `network.allow` does not open."
    )
    size: Size = Field(default=256 * 1024, description="How long a text may be; the rest is cut off.")

    @field_validator("canaries")
    @classmethod
    def _keep_canaries_apart(cls, canaries: tuple[CanarySource, ...]) -> tuple[CanarySource, ...]:
        ordered = sorted(canaries, key=lambda canary: canary.name)
        for first, second in pairwise(ordered):
            if first.name == second.name:
                raise ValueError(f"two canaries have the name {first.name}; give each its own")
        return tuple(ordered)
