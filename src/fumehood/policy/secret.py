"""Credentials that the gateway adds to requests on the way out. Their values never enter a policy or a sandbox."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from fumehood.policy.host_value import HostValue, Variable
from fumehood.policy.hosts import Host
from fumehood.policy.section import Section, Text

_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", re.ASCII)
# Headers that decide where a message goes or ends; setting one would let a secret's text split requests.
_FRAMING = frozenset(
    {
        *("host", "connection", "content-length", "transfer-encoding", "upgrade", "te", "trailer", "expect"),
        *("keep-alive", "proxy-connection", "accept-encoding"),
    }
)


def _check_header(text: str) -> str:
    if _HEADER.fullmatch(text) is None or text.lower() in _FRAMING:
        raise ValueError("must be a header that may carry a credential, such as Authorization")
    return text


def _check_format(text: str) -> str:
    if text.count("{}") != 1 or text.count("{") != 1 or text.count("}") != 1:
        raise ValueError('must hold {} once, where the secret goes, such as "Bearer {}"')
    return text


class Injection(Section):
    """Where the gateway puts a secret: one header, to one host, over TLS, in requests that the rules allow."""

    host: Host = Field(description="The only host whose requests get it.")
    header: Annotated[Text, AfterValidator(_check_header)] = Field(
        default="Authorization", description="The header that carries it."
    )
    format: Annotated[Text, AfterValidator(_check_format)] = Field(
        default="Bearer {}", description="The header's value; {} is where the secret goes."
    )


class Secret(HostValue):
    """A credential by name, where its value is found on the host, and the only place where it is used."""

    kind: ClassVar[str] = "secret"

    name: Variable = Field(description="What it is called in messages and records.")
    inject: Injection = Field(
        description="Which requests get it. They have to be allowed by `network.allow`, over TLS."
    )
