"""Requests to agents in other processes: sent, answered, cancelled, and found to be lost.

While a request is open, its home is asked now and then whether it still knows it. That question travels behind the
request, and its answer behind the request's own: a home that does not know it has never got it, or its answer was lost.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import cast

import anyio
from anyio.abc import TaskGroup

from fumehood.errors import AgentLostError, DeliveryError, FumehoodError, MessageError
from fumehood.runtime.dead_letters import DeadLetterRecorder, reason_of
from fumehood.runtime.envelopes import Envelope, ReplyEnvelope, ReplyFailure
from fumehood.runtime.nats.connection import NO_RESPONDERS, Received, loop_time
from fumehood.runtime.nats.directory import Directory
from fumehood.runtime.nats.membership import Membership
from fumehood.runtime.nats.replies import Outbox
from fumehood.runtime.nats.subjects import Address, Parcel, Subjects, sender_token
from fumehood.runtime.pending import PendingRequests

PROBE_SECONDS = 0.5
ELSEWHERE = "elsewhere"
"""The kind of a failure: the process is not the recipient's home, and has done nothing."""
_MOST_MOVES = 40
_MOVE_SECONDS = 0.05
_MOST_UNREACHABLE = 2
_MOST_PROBED = 10_000


@dataclass(frozen=True, slots=True)
class _OpenRequest:
    envelope: Envelope
    home: Address
    subject: str
    moves: int = 0
    sent: float = field(default_factory=loop_time)


class Requests:
    """The open requests of this process to agents elsewhere."""

    def __init__(
        self,
        subjects: Subjects,
        directory: Directory,
        membership: Membership,
        pending: PendingRequests,
        dead_letters: DeadLetterRecorder,
        outbox: Outbox,
    ) -> None:
        self._subjects, self._directory, self._membership = subjects, directory, membership
        self._pending, self._dead_letters, self._outbox = pending, dead_letters, outbox
        self._open: dict[str, _OpenRequest] = {}
        self._unreachable: dict[Address, int] = {}
        self._group: TaskGroup | None = None

    def send(self, envelope: Envelope, home: Address, moves: int = 0) -> None:
        """Returns at once; what becomes of it settles the pending request."""
        own = self._membership.address
        subject = self._subjects.to(home, own, "ask", sender_token(envelope.sender))
        self._open[envelope.message_id] = _OpenRequest(envelope, home, subject, moves)
        reply = self._subjects.to(own, home, "answer", envelope.message_id)
        self._outbox.put(subject, envelope.to_bytes(loop_time(), time.time()), reply)

    def abandon(self, envelope: Envelope) -> bool:
        """Whether it was a request to another process, which is told to stop."""
        request = self._open.pop(envelope.message_id, None)
        if request is not None:
            subject = self._subjects.to(request.home, self._membership.address, "cancel")
            self._outbox.put(subject, envelope.message_id.encode())
        return request is not None

    def answered(self, parcel: Parcel, message: Received) -> None:
        request = self._open.get(parcel.detail)
        if request is None or request.home != parcel.by:
            # Late, or from a process that was not asked; an earlier incarnation is another process.
            return
        if message.status:
            if message.status == NO_RESPONDERS:
                self._follow(request, self._unreachable_error(request))
            return
        try:
            answer = ReplyEnvelope.from_bytes(message.data)
        except MessageError as error:
            assert self._group is not None
            self._group.start_soon(self.fail, request.envelope, error)
            return
        if answer.message_id != parcel.detail:
            return
        if answer.failure is not None and answer.failure.kind == ELSEWHERE:
            self._follow(request, DeliveryError(f"{answer.by} has no home at the moment: {answer.failure.text}"), True)
        elif self._pending.settle(answer):
            self._open.pop(parcel.detail, None)

    async def fail(self, envelope: Envelope, error: FumehoodError) -> None:
        """Ends a request without an answer, with a dead letter at this end."""
        self._open.pop(envelope.message_id, None)
        if self._pending.fail(envelope.message_id, ReplyFailure.of(error)):
            await self._dead_letters.record(envelope, reason_of(error), str(error))

    async def fail_all(self, error: FumehoodError) -> None:
        for request in tuple(self._open.values()):
            await self.fail(request.envelope, error)

    def refused(self, text: str) -> None:
        """NATS does not let this process send that: its credentials do not have the sender's type."""
        for request in tuple(self._open.values()):
            if f'"{request.subject}"' in text and self._group is not None:
                error = DeliveryError(
                    f"NATS does not let the process {self._membership.address.process} send as "
                    f"{request.envelope.sender or 'the application'}; its credentials need a permission for it"
                )
                self._group.start_soon(self.fail, request.envelope, error)

    # Agents that have moved

    def _follow(self, request: _OpenRequest, error: DeliveryError, is_moving: bool = False) -> None:
        """Nothing was done there: the home has changed, or is changing, or this is the error."""
        assert self._group is not None
        self._open.pop(request.envelope.message_id, None)
        self._group.start_soon(self._send_again, request, error, is_moving)

    async def _send_again(self, request: _OpenRequest, error: DeliveryError, is_moving: bool) -> None:
        envelope = request.envelope
        with suppress(DeliveryError):
            await self._directory.refresh_type(envelope.to.type)
        home = self._directory.home(envelope.to)
        if home == request.home and is_moving:
            await anyio.sleep(_MOVE_SECONDS)
        is_the_end = home is None or request.moves >= _MOST_MOVES or (home == request.home and not is_moving)
        if home is None or is_the_end:
            await self.fail(envelope, error)
        elif self._pending.is_open(envelope.message_id):
            self.send(envelope, home, request.moves + 1)

    # Requests that are lost

    async def run(self) -> None:
        async with anyio.create_task_group() as group:
            self._group = group
            while True:
                await anyio.sleep(PROBE_SECONDS)
                await self._probe()

    async def _probe(self) -> None:
        homes: dict[Address, list[str]] = defaultdict(list)
        for message_id, request in tuple(self._open.items()):
            if not self._pending.is_open(message_id):
                del self._open[message_id]
            elif request.sent < loop_time() - PROBE_SECONDS:
                # A younger one may still be answered by NATS itself: that it was not delivered.
                homes[request.home].append(message_id)
        for home, message_ids in homes.items():
            if self._is_gone(home):
                self._unreachable.pop(home, None)
                await self._lose(home, message_ids)
            else:
                own = self._membership.address
                data = json.dumps(message_ids[:_MOST_PROBED]).encode()
                self._outbox.put(self._subjects.to(home, own, "probe"), data, self._subjects.to(own, home, "probed"))

    def _is_gone(self, home: Address) -> bool:
        is_lost = not self._directory.is_current(home) or self._membership.is_lost(home.process)
        return is_lost or self._unreachable.get(home, 0) >= _MOST_UNREACHABLE

    def probed(self, parcel: Parcel, message: Received) -> None:
        """The home has said which of the requests it does not know, or NATS that it is not connected."""
        if message.status:
            if message.status == NO_RESPONDERS:
                self._unreachable[parcel.by] = self._unreachable.get(parcel.by, 0) + 1
            return
        self._unreachable.pop(parcel.by, None)
        if (unknown := read_texts(message.data)) and self._group is not None:
            self._group.start_soon(self._lose, parcel.by, unknown)

    async def _lose(self, home: Address, message_ids: list[str]) -> None:
        for message_id in message_ids:
            request = self._open.get(message_id)
            if request is not None and request.home == home:
                await self.fail(request.envelope, _lost(request))

    def _unreachable_error(self, request: _OpenRequest) -> DeliveryError:
        return DeliveryError(
            f"the process {request.home.process}, the home of {request.envelope.to}, is not connected; nothing was "
            f"delivered. Another process takes over in at most {self._membership.lease_seconds:g} seconds, "
            "if one has registered the type"
        )


def _lost(request: _OpenRequest) -> AgentLostError:
    return AgentLostError(
        f"the process {request.home.process}, the home of {request.envelope.to}, was lost before it answered "
        f"{request.envelope.payload.name}; whether that had an effect is not known, and it is not sent again"
    )


def read_texts(data: bytes) -> list[str]:
    """A JSON list of texts; empty if it is anything else."""
    try:
        found: object = json.loads(data)
    except (ValueError, RecursionError):
        return []
    values = cast("list[object]", found) if isinstance(found, list) else []
    return [value for value in values if isinstance(value, str)]
