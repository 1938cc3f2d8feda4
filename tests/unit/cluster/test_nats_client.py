"""What somebody on the way to NATS can say before there is TLS, when nothing proves who says it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import nats_server
import pytest
from nats.aio.msg import Msg
from nats.errors import BadSubjectError

from fumehood.cluster import connection as cluster_connection
from fumehood.cluster.authority import ClusterAuthority
from fumehood.cluster.credentials import MemberCredentials
from fumehood.cluster.nats_client import NatsClient
from fumehood.errors import DeliveryError, LostError, UsageError
from fumehood.runtime.nats import NatsConnection, NatsRuntime
from fumehood.runtime.nats import connection as runtime_connection

pytestmark = pytest.mark.anyio
_SECONDS = 0.7


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_connection, "CONNECT_SECONDS", _SECONDS)
    monkeypatch.setattr(runtime_connection, "_CONNECT_SECONDS", _SECONDS)


class Impostor:
    """Listens where NATS should, greets as it likes, and keeps what it is told in the clear."""

    def __init__(self, greeting: Callable[[int], dict[str, object]]) -> None:
        self._greeting, self.port = greeting, 0
        self.heard = b""
        self.visits = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.visits += 1
        try:
            await self._answer(reader, writer)
        except OSError:
            pass  # the other end has reset it
        finally:
            writer.close()

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        greeting = {"server_id": "N", "version": "2.9.10", "max_payload": 1 << 20, "headers": True, "nonce": "x"}
        writer.write(b"INFO " + json.dumps(greeting | self._greeting(self.port)).encode() + b"\r\n")
        while data := await reader.read(65536):
            self.heard += data
            if b"PING" in data:
                writer.write(b"PONG\r\n")


@asynccontextmanager
async def impostor(greeting: Callable[[int], dict[str, object]]) -> AsyncIterator[Impostor]:
    made = Impostor(greeting)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        await made.end()


def credentials(folder: Path, port: int) -> MemberCredentials:
    authority = ClusterAuthority.create(folder / "authority", [f"tls://127.0.0.1:{port}"])
    return authority.make_member("w1", "worker")


async def test_a_member_says_nothing_to_one_that_greets_without_tls(tmp_path: Path) -> None:
    """It would be NATS from then on: it would send openings to workers, and get the secrets of servers."""
    async with impostor(lambda _: {"tls_required": False}) as nats:
        with pytest.raises(LostError, match="without TLS"):
            await cluster_connection.connect(credentials(tmp_path, nats.port))
    assert (nats.visits > 0, nats.heard) == (True, b"")


async def test_a_runtime_says_nothing_to_one_that_greets_without_tls(tmp_path: Path) -> None:
    async with impostor(lambda _: {}) as nats:
        member = credentials(tmp_path, nats.port)
        for settings in (NatsConnection.of_member(member), NatsConnection(f"tls://127.0.0.1:{nats.port}")):
            with pytest.raises(DeliveryError, match="without TLS"):
                async with NatsRuntime(settings, audit=False):
                    pass
    assert (nats.visits > 0, nats.heard) == (True, b"")


async def test_a_greeting_leads_to_no_other_server(tmp_path: Path) -> None:
    """A name of the stranger's own would have a certificate of any public authority."""
    async with impostor(lambda _: {}) as other:

        def greeting(_: int) -> dict[str, object]:
            return {"tls_required": True, "connect_urls": [f"localhost:{other.port}"]}

        async with impostor(greeting) as nats:
            with pytest.raises(DeliveryError):
                async with NatsRuntime(NatsConnection(f"tls://127.0.0.1:{nats.port}"), audit=False):
                    pass
    assert (nats.visits > 0, other.visits) == (True, 0)


def test_a_web_socket_without_tls_is_refused_whatever_else_is_given(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="would not be encrypted"):
        NatsConnection("ws://nats.example:80", tls=credentials(tmp_path, 1).context())


async def test_a_subscription_that_failed_takes_nothing_of_the_next_one() -> None:
    taken: list[object] = []
    heard: asyncio.Queue[bytes] = asyncio.Queue()
    with nats_server.running() as server:
        client = NatsClient()
        await client.connect(server.url)
        try:
            with pytest.raises(BadSubjectError):
                await client.listen("", taken.append)

            async def hear(message: Msg) -> None:
                heard.put_nowait(message.data)

            await client.subscribe("next", cb=hear)
            await client.flush()
            client.send("next", b"for the next one")
            async with asyncio.timeout(5):
                assert await heard.get() == b"for the next one"
        finally:
            await client.close()
    assert taken == []
