"""The tests that a policy carries about itself, as firewall rules do. They change nothing that is enforced."""

from __future__ import annotations

from typing import Annotated, Literal, Self, cast, get_args

from pydantic import AfterValidator, Field, model_validator

from fumehood.policy.amounts import check_amount
from fumehood.policy.hosts import Endpoint
from fumehood.policy.paths import ReachedPath
from fumehood.policy.section import Section, Text
from fumehood.policy.urls import check_request

AttemptKind = Literal["connect", "http", "read", "write", "command", "resource"]
ATTEMPTS: tuple[AttemptKind, ...] = get_args(AttemptKind)


class Expectation(Section):
    """One attempt, and whether the policy is meant to allow it. Relative paths start from the workspace."""

    connect: Endpoint | None = Field(default=None, description="A connection, as host:port.")
    http: Annotated[Text, AfterValidator(check_request)] | None = Field(
        default=None, description="A request, as METHOD URL."
    )
    read: ReachedPath | None = Field(
        default=None, description="A path that is read. Relative paths start from the workspace."
    )
    write: ReachedPath | None = Field(default=None, description="A path that is written.")
    command: Text | None = Field(default=None, description="A command line.")
    resource: Annotated[Text, AfterValidator(check_amount)] | None = Field(
        default=None, description="An amount, such as memory=1G."
    )
    expect: Literal["allow", "deny"] = Field(description="Whether the policy is meant to allow it.")

    @model_validator(mode="after")
    def _require_one_attempt(self) -> Self:
        if sum(getattr(self, name) is not None for name in ATTEMPTS) != 1:
            raise ValueError(f"needs exactly one of {', '.join(ATTEMPTS)}")
        return self

    @property
    def kind(self) -> AttemptKind:
        return next(name for name in ATTEMPTS if getattr(self, name) is not None)

    @property
    def target(self) -> str:
        """What is tried: an endpoint, a request, a path, a command line or an amount."""
        return cast("str", getattr(self, self.kind))

    @property
    def attempt(self) -> str:
        return f"{self.kind} {self.target}"
