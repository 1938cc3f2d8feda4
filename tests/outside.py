"""An outside world for sandboxes: servers on the loopback, names that lead there or elsewhere, and a gateway to it.

No packet ever leaves this machine: names lead to the loopback, or to addresses that the gateway has to refuse.
"""

from __future__ import annotations

import itertools
import secrets
import ssl
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from ipaddress import ip_address
from pathlib import Path

from upstreams import CertificateAuthority, Echo, Web, serving

import fumehood.egress
from fumehood.egress import Gateway
from fumehood.egress.dial import Resolver
from fumehood.egress.log import UnreachableError
from fumehood.policy.egress import Address

HERE = "127.0.0.1"
SECRET_VARIABLE = "FUMEHOOD_TEST_TOKEN"
TOKEN = f"token-{secrets.token_hex(16)}"


class Outside:
    """`web` speaks HTTP, `secure` HTTPS, `raw` sends back what it gets."""

    def __init__(self, folder: Path) -> None:
        self.authority = CertificateAuthority(folder)
        self.web, self.raw = Web(), Echo()
        self.secure = Web(self.authority.context("secure.example", "reader.example", "token.example"))
        self._turns = itertools.cycle((HERE, "169.254.169.254"))

    @property
    def servers(self) -> tuple[Web | Echo, ...]:
        return (self.web, self.raw, self.secure)

    async def resolve(self, name: str) -> Sequence[Address]:
        places = {
            "plain.example": [HERE],
            "open.example": [HERE],
            "secure.example": [HERE],
            "reader.example": [HERE],
            "token.example": [HERE],
            "raw.example": [HERE],
            "a.wild.example": [HERE],
            "inside.example": ["10.0.0.7"],
            "loop.example": [HERE],
            "metadata.example": ["169.254.169.254"],
            "mapped.example": ["::ffff:169.254.169.254"],
            "turning.example": [next(self._turns)] if name == "turning.example" else [],
        }
        if name not in places:
            raise UnreachableError(f"{name} does not exist")
        return [ip_address(text) for text in places[name]]

    def rules(self) -> list[dict[str, object]]:
        web, raw, secure = [self.web.port], [self.raw.port], [self.secure.port]
        return [
            {"host": "open.example", "ports": web, "protocol": "http", "private": True},
            {
                "host": "plain.example",
                "ports": web,
                "protocol": "http",
                "private": True,
                "methods": ["GET"],
                "paths": ["/open/**"],
            },
            {"host": "secure.example", "ports": secure, "protocol": "tls", "private": True},
            {
                "host": "reader.example",
                "ports": secure,
                "protocol": "tls",
                "private": True,
                "methods": ["GET"],
                "paths": ["/open/**"],
            },
            {"host": "token.example", "ports": secure, "protocol": "tls", "private": True, "methods": ["GET"]},
            {"host": "raw.example", "ports": raw, "private": True},
            {"host": "*.wild.example", "ports": raw, "private": True},
            {"host": "inside.example", "ports": web, "protocol": "http"},
            {"host": "loop.example", "ports": web, "protocol": "http"},
            {"host": "metadata.example", "ports": web, "protocol": "http", "private": True},
            {"host": "mapped.example", "ports": web, "protocol": "http", "private": True},
            {"host": "turning.example", "ports": raw, "private": True},
        ]

    def secrets(self) -> list[dict[str, object]]:
        return [{"name": "TOKEN", "from_env": SECRET_VARIABLE, "inject": {"host": "token.example"}}]


@contextmanager
def open_outside() -> Iterator[Outside]:
    """Every sandbox of this process that goes out goes there."""
    with ExitStack() as stack:
        outside = Outside(Path(stack.enter_context(tempfile.TemporaryDirectory())))
        for server in outside.servers:
            stack.enter_context(serving(server))
        stack.enter_context(using_gateway(outside.resolve, outside.authority))
        yield outside


@contextmanager
def using_gateway(resolver: Resolver, authority: CertificateAuthority) -> Iterator[None]:
    """Every sandbox of this process that goes out goes by one that finds names so, and trusts nobody else."""
    gateway = Gateway(resolver=resolver, trust=lambda: ssl.create_default_context(cafile=str(authority.bundle)))
    usual, fumehood.egress.shared_gateway = fumehood.egress.shared_gateway, lambda: gateway
    try:
        yield
    finally:
        fumehood.egress.shared_gateway = usual
        gateway.close()
