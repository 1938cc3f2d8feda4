"""Attempts as tests and questions name them: a connection, a request, a path, a command line or an amount.

The tests that a policy carries about itself, as firewall rules do, change nothing that is enforced.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, NamedTuple, Self, cast, get_args

from pydantic import AfterValidator, Field, model_validator

from fumehood.frozen import frozen
from fumehood.policy.hosts import Endpoint, check_host
from fumehood.policy.paths import ReachedPath
from fumehood.policy.section import Leaf, Section, Text, leaves
from fumehood.policy.sections import Resources

AttemptKind = Literal["connect", "http", "read", "write", "command", "resource"]
ATTEMPTS: tuple[AttemptKind, ...] = get_args(AttemptKind)
_NUMBER = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,9})?", re.ASCII)
_REQUEST = re.compile(
    r"(?P<method>[A-Z]{1,20}) (?P<scheme>https?)://"
    r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s/?#:\[\]]+)(?::(?P<port>[1-9][0-9]{0,4}))?(?P<target>[/?][^\s#]*)?",
    re.ASCII,
)
_USUAL_PORTS = {"http": 80, "https": 443}


@frozen
class HttpAttempt:
    """`GET https://host/path`, taken apart by a strict pattern: nothing in it is guessed."""

    method: str
    secure: bool
    host: str
    port: int
    target: str
    """The path and the query, as they stand in the first line of a request."""


def parse_request(text: str) -> HttpAttempt:
    found = _REQUEST.fullmatch(text)
    if found is None:
        raise ValueError('must be a method and an address, such as "GET https://api.github.com/repos/x"')
    if "@" in found["host"]:
        raise ValueError("must not hold a user's name in front of the host; programs disagree on what it means")
    port = int(found["port"] or _USUAL_PORTS[found["scheme"]])
    if port > 65535:
        raise ValueError(f"has the port {port}; the largest is 65535")
    target = found["target"] or "/"
    host = check_host(found["host"].removeprefix("[").removesuffix("]"))
    is_secure = found["scheme"] == "https"
    return HttpAttempt(found["method"], is_secure, host, port, target if target.startswith("/") else "/" + target)


def check_request(text: str) -> str:
    parse_request(text)
    return text


class Amount(NamedTuple):
    """`memory=1G`: a resource and how much of it."""

    name: str
    number: float


def parse_amount(text: str) -> Amount:
    """Parses an amount in the units of the resource's key: bytes, seconds or a count."""
    name, _, amount = text.partition("=")
    leaf = next((leaf for leaf in leaves(Resources()) if leaf.key == name), None)
    if leaf is None or not amount:
        known = ", ".join(Resources.model_fields)
        raise ValueError(f"must be a resource and an amount, such as memory=1G; the resources are {known}")
    return Amount(name, leaf.quantity.parse(amount) if leaf.quantity else _parse_number(amount, leaf))


def check_amount(text: str) -> str:
    parse_amount(text)
    return text


def _parse_number(text: str, leaf: Leaf) -> float:
    if _NUMBER.fullmatch(text) is None:
        raise ValueError(f"must be a resource and a number, such as {leaf.key}=4")
    if isinstance(leaf.value, int) and "." in text:
        raise ValueError(f"must be a whole number of {leaf.key}")
    return float(text)


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
