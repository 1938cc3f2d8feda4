"""The settings of a server: one file, and options of `hood serve` that take the place of keys in it."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Self, cast

from pydantic import AfterValidator, Field, ValidationError, model_validator

from fumehood.errors import UsageError
from fumehood.host.folders import user_folder
from fumehood.host.loopback import is_loopback
from fumehood.policy.quantities import GIB, KIB, MIB, Duration, Size
from fumehood.policy.section import Ordered, Section, Text
from fumehood.policy.source import parse, read_file, visible
from fumehood.server.identity.issuers import IssuerSettings
from fumehood.server.shipping.settings import AnySinkSettings
from fumehood.server.tracing import TraceSettings

VARIABLE = "FUMEHOOD_SERVER_STATE"
PORT = 8440
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?", re.ASCII)
_OWN_NAMES = ("127.0.0.1", "localhost", "[::1]")


def _check_network(text: str) -> str:
    try:
        return str(ipaddress.ip_network(text))
    except ValueError:
        raise ValueError("must be a network such as 10.0.0.0/8, or an address") from None


def _check_name(text: str) -> str:
    if _NAME.fullmatch(text) is None:
        raise ValueError("must be a name of small letters, digits and `-`, up to 40")
    return text


def _check_place(text: str) -> str:
    split_address(text)
    return text


def split_address(text: str) -> tuple[str, int]:
    """`127.0.0.1:8440`, `[::1]:8440` or a port alone."""
    host, _, port = text.rpartition(":")
    if not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{visible(text)!r} must be HOST:PORT, such as 127.0.0.1:{PORT}")
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)


class Tls(Section):
    certificate: Text = Field(description="The file of the certificate, with those between it and its root.")
    key: Text = Field(description="The file of its key.")


class RequestLimits(Section):
    """What one request may cost before anything is known of who makes it."""

    body: Size = Field(default=16 * MIB, description="How large the body of a request may be.")
    body_time: Duration = Field(default=30.0, description="How long it may take to arrive.")
    headers_time: Duration = Field(default=10.0, description="How long the headers of a request may take to arrive.")
    archive: Size = Field(default=GIB, description="How large an archive may be that becomes a named sandbox.")
    archive_time: Duration = Field(default=600.0, description="How long it may take to arrive.")
    message: Size = Field(default=MIB + 64 * KIB, description="How large a message of the channel may be.")
    connections: Annotated[int, Field(ge=1)] = Field(default=2048, description="How many there may be at once.")
    connections_of_tenant: Annotated[int, Field(ge=1)] = Field(
        default=512, description="How many of them may be at work for one tenant."
    )
    bodies_of_tenant: Size = Field(default=256 * MIB, description="How large their bodies may be together.")
    mounts_of_tenant: Size = Field(
        default=256 * MIB, description="How large files may be together that are sent along to be mounted."
    )
    answers_of_tenant: Size = Field(
        default=256 * MIB, description="How large answers may be together that are kept for a day, to be repeated."
    )


class Lifetimes(Section):
    """How long sandboxes live; who opens one may ask for less."""

    lifetime: Duration = Field(default=3600.0, description="After which one is closed, whatever happens in it.")
    idle: Duration = Field(default=600.0, description="After which one that is not used is closed.")
    linger: Duration = Field(default=30.0, description="How long one waits for a client that lost its connection.")
    kept_days: Annotated[int, Field(ge=0)] = Field(
        default=180, description="After which named sandboxes and snapshots are removed that were not used; 0 is never."
    )


class ServerSettings(Section):
    """All of a server's settings. Without a file the defaults hold: the loopback, SQLite, the user's state folder."""

    listen: Annotated[Text, AfterValidator(_check_place)] = Field(
        default=f"127.0.0.1:{PORT}", description="Where to listen, as HOST:PORT."
    )
    e2b: Annotated[Text, AfterValidator(_check_place)] | None = Field(
        default=None, description="Where to serve programs that use E2B's SDKs, as HOST:PORT; nowhere without it."
    )
    e2b_domain: Text | None = Field(
        default=None, description="Of host names such as 8000-ID.DOMAIN, which lead to ports of sandboxes there."
    )
    tls: Tls | None = Field(default=None, description="Needed for other addresses than the loopback.")
    behind_proxy: Ordered[Annotated[Text, AfterValidator(_check_network)]] = Field(
        default=(), description="Networks of proxies that bring TLS, and whose X-Forwarded-For is believed."
    )
    hosts: Ordered[Text] = Field(default=(), description="Names that clients reach the server by, without a port.")
    origins: Ordered[Text] = Field(default=(), description="Origins of web pages that may use it.")
    database: Text | None = Field(
        default=None, description="sqlite:///PATH or postgresql://...; without it a file in the state folder."
    )
    state: Text | None = Field(default=None, description="The folder of what the server keeps on this host.")
    sealing_key: Text | None = Field(
        default=None, description="The file of the key for secrets at rest; servers of one database share it."
    )
    strict: bool = Field(default=True, description="Refuse sandboxes whose limits this host enforces only in part.")
    limits: RequestLimits = Field(default_factory=RequestLimits.defaults)
    sandboxes: Lifetimes = Field(default_factory=Lifetimes.defaults)
    console: bool = Field(default=True, description="Serve pages for people at /console (docs/console.md).")
    drain: Duration = Field(default=600.0, description="How long sandboxes may go on after the first SIGTERM.")
    oidc: Mapping[Annotated[Text, AfterValidator(_check_name)], IssuerSettings] = Field(
        default_factory=dict[str, IssuerSettings],
        description="Identity providers whose tokens are taken in the place of keys, by a name for records.",
    )
    shipping: Mapping[Annotated[Text, AfterValidator(_check_name)], AnySinkSettings] = Field(
        default_factory=dict[str, AnySinkSettings], description="Where audit records are sent to, by a name."
    )
    traces: TraceSettings | None = Field(
        default=None, description="Send OpenTelemetry traces; OTEL_EXPORTER_OTLP_ENDPOINT does so, too."
    )
    engines: Mapping[Text, Text] = Field(
        default_factory=dict[str, str], description="Tenant -> the container engine of its docker and gvisor policies."
    )
    cluster: Text | None = Field(
        default=None, description="The folder of a cluster, whose workers have the sandboxes; this host without it."
    )
    private_networks: Ordered[Text] = Field(
        default=(), description="Tenants whose policies may open addresses that are not on the public internet."
    )

    @model_validator(mode="after")
    def _require_encryption(self) -> Self:
        if not self.is_local and self.tls is None and not self.behind_proxy:
            raise ValueError(
                f"listen {self.address[0]}: others than this machine could connect, and keys would cross the network "
                "as they are; give --tls-cert and --tls-key, or --behind-proxy with the network of what has TLS"
            )
        if not self.is_local and not self.hosts:
            raise ValueError("others than this machine can connect; list the names that they use with --host")
        return self

    @model_validator(mode="after")
    def _require_encryption_for_e2b(self) -> Self:
        host = split_address(self.e2b)[0] if self.e2b else "localhost"
        if not is_loopback(host) and self.tls is None and not self.behind_proxy:
            raise ValueError(f"e2b {host}: others than this machine could connect; it needs TLS as --listen does")
        return self

    @model_validator(mode="after")
    def _require_one_issuer_each(self) -> Self:
        named = [each.issuer for each in self.oidc.values()]
        if len(set(named)) != len(named):
            raise ValueError("oidc: the same issuer is there twice")
        return self

    @property
    def address(self) -> tuple[str, int]:
        return split_address(self.listen)

    @property
    def is_local(self) -> bool:
        return is_loopback(self.address[0])

    @property
    def names(self) -> frozenset[str]:
        """Values of the header `Host` that are accepted, without the port."""
        return frozenset(name.lower() for name in (*(_OWN_NAMES if self.is_local else ()), *self.hosts))

    @property
    def folder(self) -> Path:
        return Path(self.state) if self.state else default_folder()

    @property
    def database_url(self) -> str:
        return self.database or f"sqlite:///{self.folder / 'server.db'}"


def default_folder() -> Path:
    chosen = os.environ.get(VARIABLE)
    if chosen and not os.path.isabs(chosen):
        raise UsageError(f"{VARIABLE} {chosen!r} must be an absolute path")
    return Path(chosen) if chosen else user_folder("state", os.environ, VARIABLE) / "server"


def load_settings(path: str | None, **instead: object) -> ServerSettings:
    """The settings of a file, if one is given, with what is given instead of its keys."""
    data: dict[str, object] = {}
    if path is not None:
        data, _ = parse(read_file(path), name=path, base=None)
    data |= {name: value for name, value in instead.items() if value is not None and value != []}
    try:
        return ServerSettings.model_validate(data)
    except ValidationError as error:
        raise UsageError("\n".join(_problem(path, each) for each in error.errors())) from None


def _problem(path: str | None, error: Mapping[str, object]) -> str:
    key = ".".join(map(str, cast("tuple[object, ...]", error["loc"])))
    text = str(error["msg"]).removeprefix("Value error, ")
    return ": ".join(part for part in (path or "", key, text) if part)
