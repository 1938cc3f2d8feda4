"""Connections to the cluster's NATS server, for servers, workers and runtimes: mutual TLS, and a user of NATS."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from fumehood.cluster import subjects
from fumehood.cluster.credentials import MemberCredentials
from fumehood.cluster.stream_accounts import STREAMS_API
from fumehood.errors import LostError, UsageError

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.js import JetStreamContext

    from fumehood.cluster.nats_client import NatsClient

CONNECT_SECONDS = 5
_RECONNECT_SECONDS = 0.25
_PING_SECONDS = 2
_REFUSALS = ("authorization", "authentication", "revoked")
_log = logging.getLogger(__name__)


def require_extra() -> None:
    if find_spec("nats") is None:
        raise UsageError("a cluster needs the client of NATS: pip install 'fumehood[nats]'")


async def _nothing() -> None:
    pass


async def connect(
    credentials: MemberCredentials,
    *,
    is_observer: bool = False,
    disconnected: Callable[[], Awaitable[None]] = _nothing,
    reconnected: Callable[[], Awaitable[None]] = _nothing,
) -> NatsClient:
    """LostError if NATS cannot be reached or refuses the member. A connection that breaks later is made again.

    `is_observer` is for a server's second user, in NATS's system account.
    """
    require_extra()
    from nats.errors import Error

    from fumehood.cluster.nats_client import NatsClient

    client, token = NatsClient(), credentials.observer if is_observer else credentials.user
    trouble = _Trouble()
    connecting = client.connect(
        list(credentials.urls),
        name=credentials.name,
        tls=credentials.context(),
        tls_hostname=urlsplit(credentials.urls[0]).hostname,
        user_jwt_cb=lambda: bytearray(token, "ascii"),
        signature_cb=credentials.sign,
        inbox_prefix=subjects.inbox(credentials.name),
        error_cb=trouble.note,
        disconnected_cb=disconnected,
        reconnected_cb=reconnected,
        max_reconnect_attempts=-1,
        reconnect_time_wait=_RECONNECT_SECONDS,  # pyright: ignore[reportArgumentType] - a float does
        ping_interval=_PING_SECONDS,
        max_outstanding_pings=3,
        connect_timeout=CONNECT_SECONDS,
    )
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await trouble.unless_refused(connecting)
    except (OSError, TimeoutError, Error) as error:
        await _give_up(client)
        places = ", ".join(credentials.urls)
        raise LostError(f"NATS at {places} cannot be used: {trouble.text or error or 'no answer'}") from error
    except BaseException:
        await _give_up(client)
        raise
    return client


class _Trouble:
    """What goes wrong with a connection; the client of NATS tries again whatever it is."""

    def __init__(self) -> None:
        self.text = ""
        self._refused = asyncio.Event()

    async def note(self, error: Exception) -> None:
        _log.debug("NATS: %s", error)
        if self._refused.is_set():
            return
        self.text = str(error)
        if any(word in self.text.lower() for word in _REFUSALS):
            self._refused.set()

    async def unless_refused(self, connecting: Coroutine[Any, Any, None]) -> None:
        """Of a refusal there is nothing to try again."""
        work, refused = asyncio.ensure_future(connecting), asyncio.ensure_future(self._refused.wait())
        try:
            await asyncio.wait([work, refused], return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise ConnectionRefusedError(self.text)
            work.result()
        finally:
            for task in (work, refused):
                task.cancel()
            await asyncio.gather(work, refused, return_exceptions=True)


async def _give_up(client: Client) -> None:
    await asyncio.shield(asyncio.ensure_future(close(client)))


async def subscribe(
    client: NatsClient, subject: str, take: Callable[[Msg], object], *, headers: Collection[str] = ()
) -> None:
    """Messages that have other headers than these are dropped.

    NATS proves who publishes, but not where JetStream sends its answers: a member can have the content of its own entry
    sent to any subject. Such answers have headers of JetStream's, and messages of members have none.
    """

    known = frozenset(headers)

    def take_own(message: Msg) -> None:
        if not message.headers or known.issuperset(message.headers):
            take(message)

    await client.listen(subject, take_own)


async def flush(client: Client, seconds: float = CONNECT_SECONDS) -> None:
    """Until NATS has taken all that was said, subscriptions included.

    The client's own `flush` asks ahead of what it has still to write, so that the answer does not say that this has
    come. By then it is written, and a second question comes behind it.
    """
    for _ in range(2):
        await client.flush(seconds)  # pyright: ignore[reportArgumentType] - a float does


def jetstream(client: Client) -> JetStreamContext:
    return client.jetstream(prefix=STREAMS_API)  # pyright: ignore[reportUnknownMemberType] - likewise


async def close(client: Client) -> None:
    """Whatever state it is in."""
    from nats.errors import Error

    try:
        await client.close()
    except (OSError, Error) as error:
        _log.debug("NATS: %s", error)
