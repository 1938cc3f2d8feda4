"""Answers to requests of other processes, and the queue of what this process sends without waiting."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import anyio

from fumehood.errors import DeliveryError, FumehoodError
from fumehood.runtime.envelopes import Envelope, ReplyEnvelope, ReplyFailure
from fumehood.runtime.nats.connection import NatsLink, loop_time
from fumehood.runtime.nats.membership import Membership
from fumehood.runtime.nats.subjects import Address, Subjects
from fumehood.runtime.pending import PendingRequests

_MOST_UNSENT = 100_000


class Outbox:
    """Messages in the order in which they are sent; what NATS does not take is lost, and found out by a probe.

    They wait here while NATS reads too slowly, and before there is a connection.
    """

    def __init__(self) -> None:
        self._link: NatsLink | None = None
        self._waiting: deque[tuple[str, bytes, str]] = deque(maxlen=_MOST_UNSENT)
        self._wanted = anyio.Event()

    def put(self, subject: str, data: bytes, reply: str = "") -> None:
        link = self._link
        if link is None or self._waiting or link.is_congested:
            self._waiting.append((subject, data, reply))
            self._wanted.set()
        else:
            _send(link, subject, data, reply)

    async def run(self, link: NatsLink) -> None:
        self._link = link
        while True:
            await self.send_all(link)
            self._wanted = anyio.Event()
            await self._wanted.wait()

    async def send_all(self, link: NatsLink) -> None:
        while self._waiting:
            if link.is_congested:
                await link.wait_for_room()
            _send(link, *self._waiting.popleft())


def _send(link: NatsLink, subject: str, data: bytes, reply: str) -> None:
    with suppress(DeliveryError):
        link.send(subject, data, reply)


@dataclass(frozen=True, slots=True)
class _Requester:
    """Where a request came from."""

    address: Address
    envelope: Envelope


class NatsReplies:
    """Implements `Replies`: an answer goes to the process that sent the request, which may be this one."""

    def __init__(self, subjects: Subjects, membership: Membership, pending: PendingRequests, outbox: Outbox) -> None:
        self._subjects, self._membership, self._pending, self._outbox = subjects, membership, pending, outbox
        self._requesters: dict[str, _Requester] = {}
        self.publication_finished: Callable[[Envelope], None] = lambda _: None

    def expect(self, envelope: Envelope, by: Address) -> None:
        """An answer to this request is to be sent there."""
        self._requesters[envelope.message_id] = _Requester(by, envelope)

    def knows(self, message_id: str) -> bool:
        return message_id in self._requesters

    def withdraw(self, message_id: str, by: Address) -> bool:
        """The sender has stopped waiting; False if it is another one."""
        requester = self._requesters.get(message_id)
        if requester is None or requester.address != by:
            return False
        del self._requesters[message_id]
        return True

    def is_awaited(self, envelope: Envelope) -> bool:
        return envelope.message_id in self._requesters or self._pending.is_awaited(envelope)

    def settle(self, answer: ReplyEnvelope) -> bool:
        requester = self._requesters.get(answer.message_id)
        if requester is None:
            return self._pending.settle(answer)
        if requester.envelope.to != answer.by:
            return False
        del self._requesters[answer.message_id]
        if not self._membership.is_valid:
            return False
        self.send(requester.address, answer)
        return True

    def finished(self, envelope: Envelope) -> None:
        self.publication_finished(envelope)

    def send(self, to: Address, answer: ReplyEnvelope) -> None:
        subject = self._subjects.to(to, self._membership.address, "answer", answer.message_id)
        self._outbox.put(subject, answer.to_bytes())

    def fail(self, to: Address, envelope: Envelope, error: FumehoodError, kind: str | None = None) -> None:
        failure = ReplyFailure.of(error) if kind is None else ReplyFailure(kind, str(error))
        self.send(to, ReplyEnvelope(envelope.message_id, envelope.to, failure=failure))

    def fail_all(self, error: FumehoodError) -> None:
        for requester in self._requesters.values():
            self.fail(requester.address, requester.envelope, error)
        self._requesters.clear()

    def forget(self) -> None:
        """The lease is lost: nothing is answered any more."""
        self._requesters.clear()

    def forget_late(self) -> None:
        """An answer after the deadline is not sent."""
        now = loop_time()
        for message_id, requester in tuple(self._requesters.items()):
            if requester.envelope.deadline < now:
                del self._requesters[message_id]
