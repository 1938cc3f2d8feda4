"""Credentials that the gateway adds to requests on the way out. Their values never enter a policy or a sandbox."""

from __future__ import annotations

import re
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from fumehood.policy.hosts import Host
from fumehood.policy.paths import HostPath
from fumehood.policy.section import Section, Text

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", re.ASCII)
# Headers that decide where a message goes or ends; setting one would let a secret's text split requests.
_FRAMING = frozenset(
    {
        *("host", "connection", "content-length", "transfer-encoding", "upgrade", "te", "trailer", "expect"),
        *("keep-alive", "proxy-connection", "accept-encoding"),
    }
)


def _check_variable(text: str) -> str:
    if _VARIABLE.fullmatch(text) is None:
        raise ValueError("must be a name of letters, digits and _, such as GITHUB_TOKEN")
    return text


def _check_header(text: str) -> str:
    if _HEADER.fullmatch(text) is None or text.lower() in _FRAMING:
        raise ValueError("must be a header that may carry a credential, such as Authorization")
    return text


def _check_format(text: str) -> str:
    if text.count("{}") != 1 or text.count("{") != 1 or text.count("}") != 1:
        raise ValueError('must hold {} once, where the secret goes, such as "Bearer {}"')
    return text


Variable = Annotated[Text, AfterValidator(_check_variable)]


class Injection(Section):
    """Where the gateway puts a secret: one header, to one host, over TLS, in requests that the rules allow."""

    host: Host = Field(description="The only host whose requests get it.")
    header: Annotated[Text, AfterValidator(_check_header)] = Field(
        default="Authorization", description="The header that carries it."
    )
    format: Annotated[Text, AfterValidator(_check_format)] = Field(
        default="Bearer {}", description="The header's value; {} is where the secret goes."
    )


class Secret(Section):
    """A credential by name, where its value is found on the host, and the only place where it is used."""

    name: Variable = Field(description="What it is called in messages and records.")
    from_env: Variable | None = Field(
        default=None, description="The variable of the host's environment that has the value."
    )
    from_file: HostPath | None = Field(default=None, description="The file on the host that has the value.")
    inject: Injection = Field(
        description="Which requests get it. They have to be allowed by `network.allow`, over TLS."
    )

    @model_validator(mode="after")
    def _require_one_origin(self) -> Self:
        if (self.from_env is None) == (self.from_file is None):
            raise ValueError("needs exactly one of from_env and from_file")
        return self
