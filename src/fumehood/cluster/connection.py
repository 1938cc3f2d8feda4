"""Connections to the cluster's NATS server, for servers, workers and runtimes: mutual TLS, and the member's own user."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from fumehood.cluster import subjects
from fumehood.cluster.credentials import Credentials
from fumehood.errors import LostError, UsageError

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.js import JetStreamContext

CONNECT_SECONDS = 5
_RECONNECT_SECONDS = 0.25
_PING_SECONDS = 2
_log = logging.getLogger(__name__)


def require_extra() -> None:
    if find_spec("nats") is None:
        raise UsageError("a cluster needs the client of NATS: pip install 'fumehood[nats]'")


async def _nothing() -> None:
    pass


async def connect(
    credentials: Credentials,
    *,
    is_observer: bool = False,
    disconnected: Callable[[], Awaitable[None]] = _nothing,
    reconnected: Callable[[], Awaitable[None]] = _nothing,
) -> Client:
    """LostError if NATS cannot be reached or refuses the member. A connection that breaks later is made again.

    `is_observer` is for a server's second user, in NATS's system account.
    """
    require_extra()
    from nats.aio.client import Client
    from nats.errors import Error

    client, token = Client(), credentials.observer if is_observer else credentials.user
    refusals: list[str] = []

    async def failed(error: Exception) -> None:
        refusals.append(str(error))
        _log.debug("NATS: %s", error)

    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await client.connect(
                list(credentials.urls),
                name=credentials.name,
                tls=credentials.context(),
                tls_hostname=urlsplit(credentials.urls[0]).hostname,
                user_jwt_cb=lambda: bytearray(token, "ascii"),
                signature_cb=credentials.sign,
                inbox_prefix=subjects.inbox(credentials.name),
                error_cb=failed,
                disconnected_cb=disconnected,
                reconnected_cb=reconnected,
                max_reconnect_attempts=-1,
                reconnect_time_wait=_RECONNECT_SECONDS,  # pyright: ignore[reportArgumentType] - a float does
                ping_interval=_PING_SECONDS,
                max_outstanding_pings=3,
                connect_timeout=CONNECT_SECONDS,
            )
    except (OSError, TimeoutError, Error) as error:
        await _give_up(client)
        reason = refusals[-1] if refusals else str(error) or "no answer"
        raise LostError(f"NATS at {', '.join(credentials.urls)} cannot be used: {reason}") from error
    except BaseException:
        await _give_up(client)
        raise
    return client


async def _give_up(client: Client) -> None:
    await asyncio.shield(asyncio.ensure_future(close(client)))


async def subscribe(client: Client, subject: str, take: Callable[[Msg], Awaitable[None]]) -> None:
    await client.subscribe(subject, cb=take)  # pyright: ignore[reportUnknownMemberType] - of a parameter not used here


def jetstream(client: Client) -> JetStreamContext:
    return client.jetstream()  # pyright: ignore[reportUnknownMemberType] - likewise


async def close(client: Client) -> None:
    """Whatever state it is in."""
    from nats.errors import Error

    try:
        await client.close()
    except (OSError, Error) as error:
        _log.debug("NATS: %s", error)
