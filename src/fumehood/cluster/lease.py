"""The lease of a worker: an entry that it renews every second by compare-and-set, and an epoch for each beginning.

Two processes with one name cannot both renew it. A process that could not renew it ends what it does under the epoch
before servers hold it for lost: `LeaseTimes` has both times.

The stream acknowledges nothing: it would do so wherever a worker says, in the middle of another's messages as well.
What it has stored it sends to the worker and to all servers.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from typing import TYPE_CHECKING, Any

from fumehood.cluster import subjects
from fumehood.cluster.connection import jetstream, subscribe
from fumehood.cluster.stream_accounts import STREAMS_API
from fumehood.errors import LostError, SandboxError
from fumehood.frozen import frozen

if TYPE_CHECKING:
    from nats.aio.msg import Msg

    from fumehood.cluster.nats_client import NatsClient

EXPECTED = "Nats-Expected-Last-Subject-Sequence"
STORED_HEADERS = (EXPECTED, "Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Last-Sequence")
"""Of an entry that the stream has stored, and sends to those who hear of it."""
_ATTEMPTS = 5


@frozen
class LeaseTimes:
    """In seconds. A leader of NATS that is lost is replaced in 4 to 8, and a lease has to last for longer."""

    lease: float = 15.0
    """A worker that was not heard for so long is lost."""

    @property
    def renew(self) -> float:
        """How often a worker writes its entry, and a server says that it lives."""
        return self.lease / 15

    @property
    def fence(self) -> float:
        """After so long without a renewal a worker ends what it has: early enough for all of it to be over in time."""
        return self.lease * 0.8

    @property
    def answer(self) -> float:
        """How long NATS may take to store an entry, or to read one."""
        return self.lease / 7.5


class TakenOverError(SandboxError):
    """Another process has begun a newer epoch with the same credentials."""

    def __init__(self, worker: str) -> None:
        super().__init__(f"another process uses the credentials of worker {worker}; each worker needs its own")


def now() -> float:
    """Counts while the machine sleeps, and is not set by anyone."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


async def make_workers_stream(client: NatsClient) -> None:
    """The entries of all workers, by a server; if it is there already, it stays."""
    from nats.errors import Error
    from nats.js.api import RePublish, StreamConfig

    config = StreamConfig(
        name=subjects.WORKERS_STREAM,
        subjects=[subjects.entry("*")],
        max_msgs_per_subject=1,
        max_msg_size=64 * 1024,
        allow_direct=True,
        no_ack=True,
        republish=RePublish(src=subjects.entry(">"), dest=subjects.stored(">")),
    )
    try:
        await jetstream(client).add_stream(config)  # pyright: ignore[reportUnknownMemberType] - of options not used here
    except (Error, OSError) as error:
        raise LostError(f"the cluster's list of workers cannot be made: {error}") from error


def stored_sequence(message: Msg, worker: str) -> int | None:
    """The number of a stored entry of this worker; None for what else JetStream can be made to send here."""
    headers = message.headers or {}
    sequence = headers.get("Nats-Sequence", "")
    return int(sequence) if headers.get("Nats-Subject") == subjects.entry(worker) and sequence.isdecimal() else None


class WorkerLease:
    def __init__(self, client: NatsClient, worker: str, times: LeaseTimes) -> None:
        self._client, self._worker, self._times = client, worker, times
        self._process = secrets.token_hex(8)
        self._sequence = 0
        self.epoch = 0
        self._renewed = float("-inf")
        self._number = 0
        """Of the newest entry of this process."""
        self._stored = asyncio.Event()

    @property
    def seconds_left(self) -> float:
        """Until the process must fence itself."""
        return self._renewed + self._times.fence - now()

    def expire(self) -> None:
        """Nothing holds under this epoch any more."""
        self._renewed = float("-inf")

    async def listen(self) -> None:
        """Before the first epoch begins."""
        await subscribe(self._client, subjects.stored(self._worker), self._on_stored, headers=STORED_HEADERS)

    def _on_stored(self, message: Msg) -> None:
        sequence = stored_sequence(message, self._worker)
        if sequence is not None and _number_in(message.data, self._process) == self._number:
            self._sequence = sequence
            self._stored.set()

    async def begin(self, entry: dict[str, Any]) -> None:
        """A new epoch. LostError if NATS does not answer, or no server has started in this cluster yet."""
        for _ in range(_ATTEMPTS):
            self._sequence, last = await self._read()
            self.epoch = int(last.get("epoch", 0)) + 1
            if await self._publish(entry):
                return
        raise TakenOverError(self._worker)

    async def renew(self, entry: dict[str, Any]) -> None:
        """LostError if that was not possible now, TakenOverError if it never will be."""
        if await self._publish(entry):
            return
        # An entry that was stored although we did not hear of it in time is ours.
        self._sequence, last = await self._read()
        if (last.get("process"), last.get("epoch")) != (self._process, self.epoch):
            raise TakenOverError(self._worker)
        if not await self._publish(entry):
            raise LostError("the lease cannot be renewed: NATS does not say that the entry is stored")

    async def _read(self) -> tuple[int, dict[str, Any]]:
        from nats.errors import Error

        question = f"{STREAMS_API}.DIRECT.GET.{subjects.WORKERS_STREAM}.{subjects.entry(self._worker)}"
        try:
            message = await self._client.request(question, b"", timeout=self._times.answer)
        except (Error, OSError) as error:
            raise LostError(f"the list of workers cannot be read: {error or type(error).__name__}") from error
        headers = message.headers or {}
        if "Nats-Sequence" not in headers:
            return 0, {}
        return int(headers["Nats-Sequence"]), json.loads(message.data)

    async def _publish(self, entry: dict[str, Any]) -> bool:
        """False if it is not stored in time, because another one was written since ours or NATS is slow."""
        from nats.errors import Error

        begun = now()
        self._number += 1
        self._stored.clear()
        own = {"epoch": self.epoch, "process": self._process, "number": self._number}
        try:
            await self._client.publish(
                subjects.entry(self._worker),
                json.dumps(entry | own).encode(),
                headers={EXPECTED: str(self._sequence)},
            )
            async with asyncio.timeout(self._times.answer):
                await self._stored.wait()
        except TimeoutError:
            return False
        except (Error, OSError) as error:
            raise LostError(f"the lease cannot be renewed: {error or type(error).__name__}") from error
        self._renewed = begun
        return True


def _number_in(data: bytes, process: str) -> int:
    """Of the entry, if it is of this process."""
    entry: dict[str, Any] = json.loads(data)
    return int(entry["number"]) if entry.get("process") == process else 0
