"""NATS's client for Python, with what it leaves open closed.

A NATS server greets in the clear. The client believes that greeting, which anyone on the way can write: without
`tls_required` in it, it would go on in the clear and never look at a certificate, and it would connect to further
servers that the greeting names. Nothing here is imported before a connection is made: the client is an extra.
"""

from __future__ import annotations

import asyncio
from typing import Any

from nats.aio.client import Client
from nats.errors import Error

_CLOSE_SECONDS = 2.0


class NoTlsError(Error):
    def __init__(self) -> None:
        super().__init__("it greets without TLS: either it is not configured for it, or somebody else answers there")


class NatsClient(Client):
    """Goes on after a greeting by TLS alone, if it was given an address or a context for that."""

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        """Before anything is said to the server, and again when it has something new to say of itself."""
        if initial_connection and self._needs_tls() and not info.get("tls_required"):
            raise NoTlsError
        # All addresses are the owner's to give.
        info.pop("connect_urls", None)
        await super()._process_info(info, initial_connection)

    def _needs_tls(self) -> bool:
        server = self._current_server
        if server is None or server.uri.scheme == "wss":  # its TLS came before the greeting
            return False
        return server.uri.scheme == "tls" or "tls" in self.options

    async def close(self) -> None:
        """In a bounded time: it would wait for ever for the end of a handshake that was broken off."""
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await super().close()
        except TimeoutError:
            pass
        finally:
            self._abort()

    def _abort(self) -> None:
        """What is left of a connection whose other end does not answer."""
        transport: Any = self._transport
        for name in ("_io_writer", "_bare_io_writer"):
            writer = getattr(transport, name, None)
            if writer is not None:
                writer.transport.abort()
