"""The tests that a policy carries about itself, as firewall rules do. They change nothing that is enforced."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, model_validator

from fumehood.policy.hosts import Endpoint
from fumehood.policy.paths import SandboxPath
from fumehood.policy.resources import Resources
from fumehood.policy.section import Section, Text

ATTEMPTS = ("connect", "http", "read", "write", "command", "resource")
_REQUEST = re.compile(r"[A-Z]+ https?://\S+")


def _check_request(text: str) -> str:
    if _REQUEST.fullmatch(text) is None:
        raise ValueError('must be a method and an address, such as "GET https://api.github.com/repos/x"')
    return text


def _check_amount(text: str) -> str:
    name, _, amount = text.partition("=")
    if name not in Resources.model_fields or not amount:
        raise ValueError("must be a resource and an amount, such as memory=1G")
    return text


class Expectation(Section):
    """One attempt, and whether the policy is meant to allow it."""

    connect: Endpoint | None = None
    http: Annotated[Text, AfterValidator(_check_request)] | None = None
    read: SandboxPath | None = None
    write: SandboxPath | None = None
    command: Text | None = None
    resource: Annotated[Text, AfterValidator(_check_amount)] | None = None
    expect: Literal["allow", "deny"]

    @model_validator(mode="after")
    def _require_one_attempt(self) -> Self:
        if sum(getattr(self, name) is not None for name in ATTEMPTS) != 1:
            raise ValueError(f"needs exactly one of {', '.join(ATTEMPTS)}")
        return self
