"""The lease of a worker: an entry that it renews every second by compare-and-set, and an epoch for each beginning.

Two processes with one name cannot both renew it. A process that could not renew for `FENCE_SECONDS` must have ended
what it does under the epoch, because servers hold it for lost after `LEASE_SECONDS`.
"""

from __future__ import annotations

import json
import secrets
import time
from typing import TYPE_CHECKING, Any

from fumehood.cluster import subjects
from fumehood.cluster.connection import jetstream
from fumehood.errors import LostError, SandboxError

if TYPE_CHECKING:
    from nats.aio.client import Client

RENEW_SECONDS = 1.0
FENCE_SECONDS = 12.0
LEASE_SECONDS = 15.0
_ANSWER_SECONDS = 2.0
EXPECTED = "Nats-Expected-Last-Subject-Sequence"
_WRONG_SEQUENCE = 10071
_ATTEMPTS = 5


class TakenOverError(SandboxError):
    """Another process has begun a newer epoch with the same credentials."""

    def __init__(self, worker: str) -> None:
        super().__init__(f"another process uses the credentials of worker {worker}; each worker needs its own")


def now() -> float:
    """Counts while the machine sleeps, and is not set by anyone."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class WorkerLease:
    def __init__(self, client: Client, worker: str) -> None:
        self._client, self._worker = client, worker
        self._process = secrets.token_hex(8)
        self._sequence = 0
        self.epoch = 0
        self._renewed = float("-inf")

    @property
    def seconds_left(self) -> float:
        """Until the process must fence itself."""
        return self._renewed + FENCE_SECONDS - now()

    def expire(self) -> None:
        """Nothing holds under this epoch any more."""
        self._renewed = float("-inf")

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
        # An entry that was stored although its acknowledgement did not come in time is ours.
        self._sequence, last = await self._read()
        if (last.get("process"), last.get("epoch")) != (self._process, self.epoch):
            raise TakenOverError(self._worker)
        if not await self._publish(entry):
            raise TakenOverError(self._worker)

    async def _read(self) -> tuple[int, dict[str, Any]]:
        from nats.errors import Error

        subject = subjects.entry(self._worker)
        try:
            message = await self._client.request(
                f"$JS.API.DIRECT.GET.{subjects.WORKERS_STREAM}.{subject}", b"", timeout=_ANSWER_SECONDS
            )
        except (Error, OSError) as error:
            raise LostError(f"the list of workers cannot be read: {error or type(error).__name__}") from error
        headers = message.headers or {}
        if "Nats-Sequence" not in headers:
            return 0, {}
        return int(headers["Nats-Sequence"]), json.loads(message.data)

    async def _publish(self, entry: dict[str, Any]) -> bool:
        """False if another entry was written since ours."""
        from nats.errors import Error
        from nats.js.errors import APIError

        begun = now()
        data = json.dumps({**entry, "epoch": self.epoch, "process": self._process}).encode()
        try:
            written = await jetstream(self._client).publish(
                subjects.entry(self._worker),
                data,
                timeout=_ANSWER_SECONDS,
                headers={EXPECTED: str(self._sequence)},
            )
        except APIError as error:
            if error.err_code == _WRONG_SEQUENCE:
                return False
            raise LostError(f"the lease cannot be renewed: {error.description}") from error
        except (Error, OSError) as error:
            raise LostError(f"the lease cannot be renewed: {error or type(error).__name__}") from error
        self._sequence, self._renewed = written.seq, begun
        return True
