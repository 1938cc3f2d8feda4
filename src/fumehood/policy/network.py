"""The way out: which hosts, ports and requests the gateway lets through. Nothing listed is no network at all."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from fumehood.policy.hosts import HostPattern
from fumehood.policy.quantities import Size, bounded
from fumehood.policy.section import Distinct, NonEmpty, Ordered, Section, Text

_METHOD = re.compile(r"[A-Za-z]{1,20}", re.ASCII)


def _check_method(text: str) -> str:
    if _METHOD.fullmatch(text) is None:
        raise ValueError("must be an HTTP method, such as GET")
    return text.upper()


def _check_path(path: str) -> str:
    if not path.startswith("/") or ".." in path.split("/"):
        raise ValueError("must start with / and not contain .., such as /repos/**")
    return path


Port = Annotated[int, bounded(1, 65535)]
Method = Annotated[Text, AfterValidator(_check_method)]
UrlPath = Annotated[Text, AfterValidator(_check_path)]


class NetworkRule(Section):
    """One opening. Without `protocol` the gateway accepts TLS and HTTP and tells them apart; raw TCP must be asked for.

    `methods` and `paths` narrow it to some requests (none given: any). `private` admits private and link-local
    addresses. `max_rate` counts new connections a second.
    """

    host: HostPattern
    ports: Annotated[Distinct[Port], NonEmpty]
    protocol: Literal["tls", "http", "tcp"] | None = None
    methods: Annotated[Distinct[Method], NonEmpty] | None = None
    paths: Annotated[Distinct[UrlPath], NonEmpty] | None = None
    private: bool = False
    max_bytes: Size | None = None
    max_connections: Annotated[int, bounded(1, 1_000_000)] | None = None
    max_rate: Annotated[float, bounded(0.001, 1_000_000.0)] | None = None

    @model_validator(mode="after")
    def _refuse_requests_in_raw_tcp(self) -> Self:
        if self.protocol == "tcp" and (self.methods is not None or self.paths is not None):
            raise ValueError("methods and paths cannot be checked with protocol tcp; use tls or http")
        return self

    @property
    def narrows_requests(self) -> bool:
        """Whether the gateway must read each request to decide."""
        return self.methods is not None or self.paths is not None


class Network(Section):
    """The rules, in the order in which the gateway tries them."""

    allow: Ordered[NetworkRule] = Field(default=())
