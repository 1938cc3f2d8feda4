"""What other processes send to this one: each message is checked before anything of it is done.

The subject proves which process sent a message and for which type of agents it speaks. The directory has the homes of
agents and their grants, which are checked here although the sender's process has checked them: it may be hostile.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

import anyio
from anyio.abc import TaskGroup

from fumehood.errors import (
    DeliveryError,
    FumehoodError,
    LoopError,
    MessageError,
    RefusedError,
    StoppedError,
)
from fumehood.runtime.audit import GrantDenied, RuntimeAudit
from fumehood.runtime.dead_letters import DeadLetterRecorder, Reason, reason_of
from fumehood.runtime.dispatch import Dispatcher
from fumehood.runtime.envelopes import Envelope
from fumehood.runtime.identity import AgentId
from fumehood.runtime.interface import RuntimeLimits
from fumehood.runtime.nats.connection import Received
from fumehood.runtime.nats.directory import Directory
from fumehood.runtime.nats.homes import AgentHomes
from fumehood.runtime.nats.replies import NatsReplies, Outbox
from fumehood.runtime.nats.requests import ELSEWHERE, Requests, read_texts
from fumehood.runtime.nats.subjects import Address, Parcel, Subjects, sender_token
from fumehood.runtime.registry import Registry
from fumehood.runtime.scheduler import Scheduler


@dataclass(frozen=True, slots=True)
class ReceptionParts:
    """The parts of a runtime that a reception uses."""

    subjects: Subjects
    directory: Directory
    homes: AgentHomes
    registry: Registry
    requests: Requests
    replies: NatsReplies
    outbox: Outbox
    scheduler: Scheduler
    dispatcher: Dispatcher
    dead_letters: DeadLetterRecorder
    audit: RuntimeAudit
    limits: RuntimeLimits


class Reception:
    """Receives requests, answers, cancellations and probes."""

    def __init__(self, parts: ReceptionParts) -> None:
        self._parts = parts
        self._group: TaskGroup | None = None
        self.is_stopped = False

    async def run(self) -> None:
        async with anyio.create_task_group() as group:
            self._group = group
            await anyio.sleep_forever()

    async def receive(self, message: Received) -> None:
        parts = self._parts
        if not message.subject.startswith(parts.subjects.to_all(parts.homes.address).removesuffix(">")):
            return
        parcel = parts.subjects.read_to(message.subject)
        if not self._is_sent_by_process(parcel, message):
            return
        match parcel.kind:
            case "ask":
                await self._ask(parcel, message.data)
            case "answer":
                await parts.requests.answered(parcel, message)
            case "cancel":
                self._cancel(parcel, message.data.decode(errors="replace"))
            case "probe":
                unknown = [each for each in read_texts(message.data) if not parts.replies.knows(each)]
                reply = parts.subjects.to(parcel.by, parts.homes.address, "probed")
                parts.outbox.put(reply, json.dumps(unknown).encode())
            case "probed":
                await parts.requests.probed(parcel, message)
            case _:
                pass

    def _is_sent_by_process(self, parcel: Parcel, message: Received) -> bool:
        """A process can make NATS deliver its stored messages to any subject, which no permission forbids.

        Those have a subject to answer to that is NATS's own, or headers. What runtimes send has neither.
        """
        expected = {"ask": "answer", "probe": "probed"}.get(parcel.kind)
        if expected is None:
            return not message.reply and (not message.headers or bool(message.status))
        own = self._parts.subjects.to(parcel.by, self._parts.homes.address, expected)
        return message.reply.startswith(own) and not message.headers

    def _cancel(self, parcel: Parcel, message_id: str) -> None:
        if self._parts.replies.withdraw(message_id, parcel.by):
            self._parts.dispatcher.abandon(message_id)

    async def _ask(self, parcel: Parcel, data: bytes) -> None:
        try:
            envelope = Envelope.from_bytes(data, anyio.current_time(), time.time())
        except MessageError:
            # There is no id to answer to; a probe of its sender finds that it is not known.
            return
        if envelope.topic is not None or self._is_duplicate(envelope):
            return
        try:
            await self._check(parcel, envelope)
        except FumehoodError as error:
            await self._refuse(parcel.by, envelope, error)
            return
        self._parts.replies.expect(envelope, parcel.by)
        await self._accept(parcel.by, envelope)

    def _is_duplicate(self, envelope: Envelope) -> bool:
        parts = self._parts
        return parts.replies.knows(envelope.message_id) or envelope.message_id in parts.dispatcher.answering

    async def _check(self, parcel: Parcel, envelope: Envelope) -> None:
        parts, sender = self._parts, envelope.sender
        if self.is_stopped:
            raise StoppedError("the runtime is stopped and accepts no more messages")
        if not parts.directory.is_current(parcel.by):
            await parts.directory.refresh(f"process.{parcel.by.process}")
            if not parts.directory.is_current(parcel.by):
                raise RefusedError(f"the process {parcel.by.process} has lost its lease, or was started anew")
        if parcel.detail != sender_token(sender):
            raise RefusedError(f"the process {parcel.by.process} sent a message in the name of {sender}")
        if sender is not None:
            await self._check_sender(parcel.by, sender, envelope)
        if envelope.hops > parts.limits.hops:
            raise LoopError(f"{envelope.payload.name[:80]} to {envelope.to} is hop {envelope.hops} of one conversation")
        if not parts.homes.is_here(envelope.to):
            await parts.directory.refresh_type(envelope.to.type)
            if not parts.homes.is_here(envelope.to):
                raise _ElsewhereError(f"the process {parts.homes.address.process} is not its home")

    async def _check_sender(self, by: Address, sender: AgentId, envelope: Envelope) -> None:
        parts = self._parts
        if parts.directory.home(sender) != by:
            await parts.directory.refresh_type(sender.type)
            if parts.directory.home(sender) != by:
                raise RefusedError(f"the process {by.process} is not the home of {sender}")
        if not parts.registry.grants_of(sender).may_send(sender.key, envelope.to):
            await parts.audit.record(GrantDenied("send to", str(envelope.to)), agent=str(sender))
            raise RefusedError(f"{sender} may not send to {envelope.to}: its grants do not say so")

    async def _refuse(self, by: Address, envelope: Envelope, error: FumehoodError) -> None:
        kind = ELSEWHERE if isinstance(error, _ElsewhereError) else None
        self._parts.replies.fail(by, envelope, error, kind)
        if kind is None:
            await self._parts.dead_letters.record(envelope, reason_of(error), str(error))

    async def _accept(self, by: Address, envelope: Envelope) -> None:
        """Into the agent's queue, in the order of arrival."""
        try:
            is_placed = not envelope.chain and self._parts.scheduler.offer(envelope, None)
        except (DeliveryError, MessageError) as error:
            self._parts.replies.withdraw(envelope.message_id, by)
            await self._refuse(by, envelope, error)
            return
        if not is_placed and self._group is not None:
            self._group.start_soon(self._wait_for_room, by, envelope)

    async def _wait_for_room(self, by: Address, envelope: Envelope) -> None:
        try:
            with anyio.CancelScope(deadline=envelope.deadline) as scope:
                await self._parts.scheduler.deliver(envelope, None)
        except (DeliveryError, MessageError) as error:
            self._parts.replies.withdraw(envelope.message_id, by)
            await self._refuse(by, envelope, error)
            return
        if scope.cancelled_caught:
            await self._parts.dead_letters.record(
                envelope, Reason.OVERLOADED, f"the queue of {envelope.to} stayed full"
            )


class _ElsewhereError(RefusedError):
    """This process is not the home of the recipient."""
