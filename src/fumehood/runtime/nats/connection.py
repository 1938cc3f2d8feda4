"""A connection to NATS: its settings, and the client with errors of ours.

A connection that breaks is made again for as long as the runtime lives. Whether the process may act meanwhile is
decided by its lease, not here.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import urlsplit

import anyio

from fumehood.cluster.connection import flush
from fumehood.cluster.credentials import MemberCredentials
from fumehood.errors import DeliveryError, OverloadedError, UsageError
from fumehood.host.loopback import is_loopback

_CONNECT_SECONDS = _TIMEOUT_SECONDS = 5.0
_RECONNECT_SECONDS = 0.1
_WORD = re.compile(r"[!-~]*")
_TLS, _NO_TLS = frozenset({"tls", "wss"}), frozenset({"ws"})
_WRONG_REVISION = frozenset({10071, 10164})
_FULL = frozenset({10047, 10077, 10025})
"""Error codes of JetStream: out of storage, a stream's limit, a consumer's limit."""
_NOT_FOUND = 404
NO_RESPONDERS = "503"
_NO_HEADERS: Mapping[str, str] = {}


class WrongRevisionError(DeliveryError):
    """Another process has written this entry of the directory in the meantime."""


class NatsRefusedError(DeliveryError):
    """NATS answered with an error; `code` is JetStream's, or 0."""

    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True, slots=True)
class NatsConnection:
    """`NatsConnection("tls://nats.example:4222", tls=context, token=token, sign=sign)`

    `tls` trusts the servers' authority and has this process's certificate, if they want one. `token` is the JSON Web
    Token of a user, and `sign` returns the signature of NATS's challenge by that user's key, as base64. Without TLS
    only the loopback is connected to.
    """

    servers: str | Sequence[str] = "nats://127.0.0.1:4222"
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    token: str = field(default="", repr=False)
    sign: Callable[[str], bytes] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if bool(self.token) != (self.sign is not None):
            raise UsageError("a token and `sign` belong together: NATS asks for a signature by the token's user")
        for url in self.urls:
            parts = urlsplit(url)
            if not parts.hostname:
                raise UsageError(f"the address of a NATS server is not valid: {url!r}; write tls://HOST:PORT")
            is_encrypted = parts.scheme in _TLS or (self.tls is not None and parts.scheme not in _NO_TLS)
            if not is_encrypted and not is_loopback(parts.hostname):
                raise UsageError(
                    f"messages to {parts.hostname} would not be encrypted; write tls://{parts.hostname}, "
                    "and give `tls` a context that trusts its authority"
                )

    @classmethod
    def of_member(cls, credentials: MemberCredentials, servers: str | None = None) -> NatsConnection:
        """With credentials of `hood cluster`, at these servers or at those which the credentials name."""
        return cls(
            servers or credentials.urls,
            tls=credentials.context(),
            token=credentials.user,
            sign=credentials.sign,
        )

    @property
    def urls(self) -> list[str]:
        return [self.servers] if isinstance(self.servers, str) else list(self.servers)


def loop_time() -> float:
    """As `anyio.current_time`, which finds out first which event loop this is: here there is asyncio alone."""
    return asyncio.get_running_loop().time()


@dataclass(frozen=True, slots=True)
class Received:
    """A message of NATS."""

    subject: str
    reply: str
    data: bytes
    status: str
    """Of NATS itself, such as 503; empty for a message of a process."""
    headers: Mapping[str, str]


Receive = Callable[[Received], Awaitable[None]]


class NatsLink:
    """The open connection; made by `open_link`."""

    def __init__(self, on_refused: Callable[[str], None]) -> None:
        # The client's own types are incomplete, and it is imported when a runtime is opened.
        from fumehood.cluster.nats_client import NatsClient

        self._client: Any = NatsClient()
        self._on_refused = on_refused
        self._refusal = self._failure = ""
        self.reconnected: list[Callable[[], None]] = []
        """Called when the connection was made again: what was sent meanwhile may be lost."""

    async def connect(self, settings: NatsConnection, name: str, inbox: str) -> None:
        from nats import errors

        options: dict[str, Any] = {"tls": settings.tls} if settings.tls else {}
        if settings.token:
            options["user_jwt_cb"] = lambda: bytearray(settings.token, "ascii")
            options["signature_cb"] = settings.sign
        try:
            # It would try for ever, as it does when a connection breaks later.
            async with asyncio.timeout(_CONNECT_SECONDS):
                await self._connect(settings, name, inbox, options)
        except (errors.Error, OSError, ValueError) as error:
            await self.close()
            reason = self._failure or str(error) or "no answer"
            raise DeliveryError(f"NATS at {', '.join(map(_shown, settings.urls))} cannot be used: {reason}") from error

    async def _connect(self, settings: NatsConnection, name: str, inbox: str, options: dict[str, Any]) -> None:
        await self._client.connect(
            settings.urls,
            name=name,
            inbox_prefix=inbox,
            max_reconnect_attempts=-1,
            reconnect_time_wait=_RECONNECT_SECONDS,
            connect_timeout=2,
            allow_reconnect=True,
            error_cb=self._failed,
            reconnected_cb=self._connected_again,
            **options,
        )

    async def close(self) -> None:
        with suppress(Exception):
            await self._client.close()

    async def _failed(self, error: Exception) -> None:
        self._failure = text = str(error)
        if "permissions violation" in text.lower():
            self._refusal = text
            self._on_refused(text)

    async def _connected_again(self) -> None:
        for call in self.reconnected:
            call()

    @property
    def is_connected(self) -> bool:
        return self._client.is_connected

    def is_refused(self, subject: str) -> bool:
        """Whether the last request was refused for want of a permission."""
        return f'"{subject}"'.lower() in self._refusal.lower()

    async def flush(self) -> None:
        with _translated("NATS"):
            await flush(self._client, _TIMEOUT_SECONDS)

    async def subscribe(self, subject: str, receive: Receive) -> Callable[[], Awaitable[None]]:
        """Returns what ends the subscription. Messages are received one after the other."""

        async def take(message: Any) -> None:
            headers = cast("dict[str, str]", message.headers or {})
            status = headers.get("Status", "") if headers else ""
            await receive(Received(message.subject, message.reply, message.data, status, headers))

        with _translated(subject):
            subscription = await self._client.subscribe(subject, cb=take)

        async def end() -> None:
            with suppress(Exception):
                await subscription.unsubscribe()

        return end

    async def listen(self, subject: str, take: Callable[[Received], object]) -> Callable[[], Awaitable[None]]:
        """As `subscribe`, with a plain function, which is called where the message was read."""

        def take_one(message: Any) -> None:
            headers = cast("dict[str, str]", message.headers or _NO_HEADERS)
            take(Received(message.subject, message.reply, message.data, headers.get("Status", ""), headers))

        with _translated(subject):
            subscription = await self._client.listen(subject, take_one)

        async def end() -> None:
            with suppress(Exception):
                await subscription.unsubscribe()

        return end

    def send(self, subject: str, data: bytes, reply: str = "") -> None:
        """As `publish`, and in order with it, without waiting; see `is_congested`."""
        with _translated(subject):
            self._client.send(subject, data, reply)

    @property
    def is_congested(self) -> bool:
        """Whether NATS reads more slowly than this process sends."""
        return self._client.is_congested

    async def wait_for_room(self) -> None:
        await self._client.wait_for_room()

    async def publish(self, subject: str, data: bytes, reply: str = "") -> None:
        _check_words(subject, reply)
        with _translated(subject):
            await self._client.publish(subject, data, reply=reply)

    async def request(
        self,
        subject: str,
        data: bytes,
        *,
        headers: dict[str, str] | None = None,
        seconds: float = _TIMEOUT_SECONDS,
    ) -> bytes:
        """The answer of NATS itself; DeliveryError if there is none in time."""
        _check_words(subject)
        self._refusal = ""
        with _translated(subject, lambda: self._refusal):
            answer = await self._client.request(subject, data, timeout=seconds, headers=headers)
        return answer.data

    async def call(
        self,
        subject: str,
        question: Mapping[str, object] | bytes,
        *,
        headers: dict[str, str] | None = None,
        seconds: float = _TIMEOUT_SECONDS,
    ) -> dict[str, Any]:
        """A question to JetStream; NatsRefusedError if it answers with an error."""
        data = question if isinstance(question, bytes) else json.dumps(question).encode()
        answer = cast("dict[str, Any]", json.loads(await self.request(subject, data, headers=headers, seconds=seconds)))
        error = cast("dict[str, Any] | None", answer.get("error"))
        if error is None:
            return answer
        text, code = str(error.get("description")), int(error.get("err_code", 0))
        if code in _WRONG_REVISION:
            raise WrongRevisionError(text)
        if code in _FULL:
            raise OverloadedError(f"NATS cannot store more: {text}")
        raise NatsRefusedError(f"NATS refused {subject}: {text}", _NOT_FOUND if error.get("code") == 404 else code)


@asynccontextmanager
async def open_link(
    settings: NatsConnection, name: str, inbox: str, on_refused: Callable[[str], None]
) -> AsyncIterator[NatsLink]:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise UsageError("a NatsRuntime needs asyncio, because the client of NATS does; use asyncio.run") from None
    try:
        link = NatsLink(on_refused)
    except ImportError:
        raise UsageError("a NatsRuntime needs the client of NATS: pip install 'fumehood[nats]'") from None
    await link.connect(settings, name, inbox)
    try:
        yield link
    finally:
        with anyio.move_on_after(_TIMEOUT_SECONDS, shield=True):
            await link.close()


class _translated:
    """Turns errors of the client into ours."""

    def __init__(self, subject: str, refusal: Callable[[], str] = str) -> None:
        self._subject, self._refusal = subject, refusal

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        if error is None:
            return
        from nats import errors

        if isinstance(error, errors.MaxPayloadError):
            raise OverloadedError(
                "the message with its addresses is larger than NATS takes; raise max_payload of the servers, "
                "or lower RuntimeLimits.message_bytes"
            ) from None
        if isinstance(error, errors.Error | TimeoutError | OSError):
            reason = self._refusal() or str(error) or type(error).__name__
            raise DeliveryError(f"NATS did not take {self._subject}: {reason}") from error


def _check_words(*subjects: str) -> None:
    """Each is a word of a line to NATS, and has parts that others have chosen: ids of messages, addresses of homes.

    Not every release of the client looks at it. A second line would be said in the name of this process.
    """
    for subject in subjects:
        if not _WORD.fullmatch(subject):
            raise DeliveryError(f"{subject[:200]!r} is no subject")


def _shown(url: str) -> str:
    """Without a password."""
    return urlsplit(url)._replace(netloc=urlsplit(url).netloc.rpartition("@")[2]).geturl()
