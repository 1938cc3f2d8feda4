"""Which Docker engine to use and how; only the backends that are built on one look here."""

from __future__ import annotations

import re
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from fumehood.policy.paths import HostPath
from fumehood.policy.section import Section, Text

_ENGINE = re.compile(r"unix:///\S+|(?:tcp|ssh)://[^\s/]+\S*")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/@-]*", re.ASCII)


def _check_engine(text: str) -> str:
    if _ENGINE.fullmatch(text) is None:
        raise ValueError("must be the address of an engine: unix:///path, tcp://host:port or ssh://user@host")
    return text


def _check_word(text: str) -> str:
    # A leading dash would be read as an option by whatever it is handed to.
    if _WORD.fullmatch(text) is None:
        raise ValueError("must be a name such as python:3.12-slim or runsc")
    return text


Reference = Annotated[Text, AfterValidator(_check_word)]


class Docker(Section):
    """The local engine with its default runtime unless said otherwise."""

    host: Annotated[Text, AfterValidator(_check_engine)] | None = Field(
        default=None,
        description=(
            "The engine's address: unix:///path, tcp://host:port or ssh://user@host. Without it, the local engine."
        ),
    )
    image: Reference | None = Field(default=None, description="The image, where `image` at the top does not name one.")
    runtime: Reference | None = Field(default=None, description="The engine's runtime, such as runc or runsc.")
    interpreter: Reference | None = Field(
        default=None, description="The image that lends its Python to images that have none."
    )
    tls_ca: HostPath | None = Field(
        default=None, description="The file with the authority that signed the engine's certificate."
    )
    tls_cert: HostPath | None = Field(default=None, description="The file with our certificate.")
    tls_key: HostPath | None = Field(default=None, description="The file with its key.")

    @model_validator(mode="after")
    def _require_certificate_and_key(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key need each other")
        return self
