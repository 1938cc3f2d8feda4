"""The way out: which hosts, ports and requests the gateway lets through. Nothing listed is no network at all.

And the way in: which ports inside the host may reach, and whether runs reach each other.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from fumehood.policy.hosts import HostPattern
from fumehood.policy.quantities import Bounds, Size
from fumehood.policy.section import Distinct, NonEmpty, Ordered, Section, Text

_METHOD = re.compile(r"[A-Za-z]{1,20}", re.ASCII)
_HEADER = re.compile(r"[A-Za-z0-9*-]{1,200}", re.ASCII)


def is_method(text: str) -> bool:
    """Whether a rule can list it; methods of programs differ in upper and lower case."""
    return _METHOD.fullmatch(text) is not None and text.isupper()


def _check_method(text: str) -> str:
    if _METHOD.fullmatch(text) is None:
        raise ValueError("must be an HTTP method, such as GET")
    return text.upper()


def _check_path(path: str) -> str:
    if not path.startswith("/") or ".." in path.split("/"):
        raise ValueError("must start with / and not contain .., such as /repos/**")
    return path


def _check_header(text: str) -> str:
    if _HEADER.fullmatch(text) is None:
        raise ValueError("must be a header's name of letters, digits and -, such as X-Tenant; * stands for any of them")
    return text.lower()


Port = Annotated[int, Bounds(1, 65535)]
Method = Annotated[Text, AfterValidator(_check_method)]
UrlPath = Annotated[Text, AfterValidator(_check_path)]
HeaderPattern = Annotated[Text, AfterValidator(_check_header)]


Protocol = Literal["tls", "http", "tcp"]
_USUAL: dict[int, Protocol] = {443: "tls", 80: "http"}


class NetworkRule(Section):
    """One opening. What may be spoken there is `protocol`, or without it: TLS on port 443, HTTP on 80, else any TCP.

    `host` is a name, `*.name`, `*` (any name), an address or a block of addresses. `methods` and `paths` narrow it to
    some requests (none given: any), and `headers` lets those have unusual headers. `websocket` lets a request that
    they allow go on as a WebSocket, on which nothing more is read. `private` admits addresses that are not public.
    Limits hold for a sandbox: `max_bytes` in both directions together, `max_connections` at a time, `max_rate` new
    connections a second.
    """

    host: HostPattern = Field(
        description="A name, `*.name` (names below it), `*` (any name), an address or a block of addresses."
    )
    ports: Annotated[Distinct[Port], NonEmpty] = Field(description="The ports that may be connected to.")
    protocol: Protocol | None = Field(
        default=None,
        description=(
            "What may be spoken there. Without it: `tls` on port 443, `http` on port 80, otherwise `tcp` (anything)."
        ),
    )
    methods: Annotated[Distinct[Method], NonEmpty] | None = Field(
        default=None,
        description=(
            "Only requests with these methods, such as [GET]. Without it any; with `paths` the usual ones, which are "
            "about their own path: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS and QUERY."
        ),
    )
    paths: Annotated[Distinct[UrlPath], NonEmpty] | None = Field(
        default=None, description="Only requests to these paths, as globs such as /repos/**. Without it any."
    )
    headers: Annotated[Distinct[HeaderPattern], NonEmpty] | None = Field(
        default=None,
        description=(
            "Headers that requests may have besides those that are known to be harmless, such as [X-Tenant]; `*` "
            "stands for any characters. Needs `methods` or `paths`: without them requests may have any header."
        ),
    )
    websocket: bool = Field(
        default=False, description="Let a request open a WebSocket; what is said in it afterwards is not read."
    )
    private: bool = Field(
        default=False, description="Admit addresses that are not public, such as those of the local network."
    )
    max_bytes: Size | None = Field(
        default=None, description="How much may pass in both directions together, for a sandbox."
    )
    max_connections: Annotated[int, Bounds(1, 1_000_000)] | None = Field(
        default=None, description="How many connections at a time, for a sandbox."
    )
    max_rate: Annotated[float, Bounds(0.001, 1_000_000.0)] | None = Field(
        default=None, description="How many new connections a second, for a sandbox."
    )

    @classmethod
    def written_out(cls, word: str) -> str:
        host, _, port = word.rpartition(":")
        return f"{{host: {host}, ports: [{port}]}}" if host and port.isdecimal() else f"{{host: {word}, ports: [443]}}"

    @model_validator(mode="after")
    def _refuse_requests_in_raw_tcp(self) -> Self:
        raw = [port for port in self.ports if self.protocol_on(port) == "tcp"]
        if raw and (self.narrows_requests or self.websocket):
            raise ValueError(
                "methods, paths and websocket cannot be checked with protocol tcp, which is that of port "
                f"{raw[0]}; set protocol to tls or http"
            )
        return self

    @model_validator(mode="after")
    def _refuse_headers_alone(self) -> Self:
        if self.headers is not None and not self.narrows_requests:
            raise ValueError("headers needs methods or paths; without them requests may have any header")
        return self

    @property
    def narrows_requests(self) -> bool:
        """Whether the gateway must read each request to decide."""
        return self.methods is not None or self.paths is not None

    def protocol_on(self, port: int) -> Protocol:
        return self.protocol or _USUAL.get(port, "tcp")


class Network(Section):
    """The rules. Their order says nothing: of those that cover a host, the most exact ones decide, together."""

    allow: Ordered[NetworkRule] = Field(
        default=(),
        description=(
            "The hosts that may be reached, one rule each. Their order says nothing: of the rules that "
            "cover a host the most exact ones decide."
        ),
    )
    publish: Distinct[Port] = Field(
        default=(),
        description=(
            "Ports of servers inside that the host may reach at a loopback address of its own, with a token. "
            "Runs of a sandbox that has any share one loopback."
        ),
    )
    shared_loopback: bool = Field(
        default=False,
        description="Let the runs of one sandbox share a loopback, so that a server in one serves a client in another.",
    )

    @property
    def shares_loopback(self) -> bool:
        """Published ports are those of the sandbox, not of one of its runs, so they need it too."""
        return self.shared_loopback or bool(self.publish)
