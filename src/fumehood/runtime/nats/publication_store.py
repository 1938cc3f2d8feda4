"""Publications of this process: stored once for each recipient, in the stream from which its home takes them."""

from __future__ import annotations

import hashlib
import time

import anyio

from fumehood.errors import DeadlineError, DeliveryError, FumehoodError, OverloadedError
from fumehood.runtime.dead_letters import DeadLetterRecorder, reason_of
from fumehood.runtime.envelopes import Envelope, chain_link
from fumehood.runtime.nats.connection import NatsLink, loop_time
from fumehood.runtime.nats.subjects import Subjects

_ATTEMPT_SECONDS = 2.0
_RETRY_SECONDS = 0.1


class PublicationStore:
    """Stores publications; `link` is set when the runtime is connected."""

    def __init__(self, subjects: Subjects, process: str, dead_letters: DeadLetterRecorder) -> None:
        self._subjects, self._process, self._dead_letters = subjects, process, dead_letters
        self.link: NatsLink | None = None

    async def store(self, envelopes: list[Envelope]) -> None:
        """Returns when all are acknowledged; raises the first DeliveryError, and the others are stored all the same."""
        failures: list[FumehoodError] = []
        async with anyio.create_task_group() as group:
            for envelope in envelopes:
                group.start_soon(self._store_one, envelope, failures)
        if failures:
            raise failures[0]

    async def _store_one(self, envelope: Envelope, failures: list[FumehoodError]) -> None:
        try:
            await self._store(envelope)
        except FumehoodError as error:
            failures.append(error)
            await self._dead_letters.record(envelope, reason_of(error), str(error))

    async def _store(self, envelope: Envelope) -> None:
        """Again with the same id while NATS is away: it stores one of them."""
        link, subject = self.link, self._subjects.publication(envelope.to, self._process, envelope.sender)
        assert link is not None
        headers = {"Nats-Msg-Id": hashlib.sha256(chain_link(envelope.message_id, envelope.to).encode()).hexdigest()}
        data, error = envelope.to_bytes(loop_time(), time.time()), None
        while (left := envelope.deadline - loop_time()) > 0:
            try:
                await link.call(subject, data, headers=dict(headers), seconds=min(left, _ATTEMPT_SECONDS))
                return
            except OverloadedError:
                raise
            except DeliveryError as failed:
                if link.is_refused(subject):
                    raise
                error = failed
                await anyio.sleep(min(left, _RETRY_SECONDS))
        raise DeadlineError(f"NATS has not acknowledged {envelope.payload.name} to {envelope.topic} in time: {error}")
