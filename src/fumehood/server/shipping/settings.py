"""The sinks of the settings: where records go, and of which tenants."""

from __future__ import annotations

from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from fumehood.host.loopback import is_loopback
from fumehood.policy.section import Ordered, Section, Text
from fumehood.server.http_call import check_url

EVERY_TENANT = "*"
# The number that IANA keeps for examples: Fumehood has none of its own.
_EXAMPLE_ENTERPRISE = 32473


def _check_syslog(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme == "unix" and parts.path.startswith("/") and not parts.netloc:
        return text
    if parts.scheme not in ("tcp", "tls") or not parts.hostname or parts.path or parts.port is None:
        raise ValueError("must be tls://HOST:PORT, tcp://HOST:PORT or unix:///PATH")
    if parts.scheme == "tcp" and not is_loopback(parts.hostname):
        raise ValueError("must be tls://: records would cross the network as they are; tcp:// is for the loopback")
    return text


class SinkSettings(Section):
    tenants: Ordered[Text] = Field(default=(EVERY_TENANT,), description="Whose records it gets; `*` for all tenants.")
    own: bool = Field(default=True, description="Whether it gets the records of the server itself, too.")

    def wants(self, tenant: str | None) -> bool:
        """None stands for the server itself."""
        return self.own if tenant is None else EVERY_TENANT in self.tenants or tenant in self.tenants


class SyslogSettings(SinkSettings):
    """RFC 5424 with counted octets, over TLS, TCP at the loopback, or a socket file such as /dev/log."""

    kind: Literal["syslog"]
    address: Annotated[Text, AfterValidator(_check_syslog)]
    ca: Text | None = Field(default=None, description="A file of certificates to trust at the address.")
    facility: Annotated[int, Field(ge=0, le=23)] = Field(default=13, description="By number; 13 is for audit logs.")
    enterprise: Annotated[int, Field(ge=1)] = Field(
        default=_EXAMPLE_ENTERPRISE, description="The private enterprise number of the structured data."
    )


class OcsfSettings(SinkSettings):
    """Lines of JSON in the Open Cybersecurity Schema, into a file or to an address."""

    kind: Literal["ocsf"]
    file: Text | None = Field(default=None, description="A file to append to, or else ...")
    url: Annotated[Text, AfterValidator(check_url)] | None = Field(
        default=None, description="... an address that takes such lines by POST."
    )
    token_file: Text | None = Field(default=None, description="A file with the bearer token for that address.")
    ca: Text | None = Field(default=None, description="A file of certificates to trust there.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.file is None) == (self.url is None):
            raise ValueError("give either `file` or `url`")
        if self.file is not None and not self.file.startswith("/"):
            raise ValueError("file: must be an absolute path")
        return self


class WebhookSettings(SinkSettings):
    """Batches of records by POST, signed as Standard Webhooks describes."""

    kind: Literal["webhook"]
    url: Annotated[Text, AfterValidator(check_url)]
    secret_file: Text = Field(description="The file of the shared secret, for the signature; 24 characters or more.")
    ca: Text | None = Field(default=None, description="A file of certificates to trust there.")


AnySinkSettings = Annotated[SyslogSettings | OcsfSettings | WebhookSettings, Field(discriminator="kind")]
