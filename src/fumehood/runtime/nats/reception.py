"""What other processes send to this one: each message is checked before anything of it is done.

The subject proves which process sent a message and for which type of agents it speaks. The directory has the homes of
agents and their grants, which are checked here although the sender's process has checked them: it may be hostile.
"""

from __future__ import annotations

import json
import logging
import time
from collections import deque
from dataclasses import dataclass

import anyio
from anyio.abc import TaskGroup

from fumehood.egress.limits import TokenBucket
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
from fumehood.runtime.interface import RuntimeLimits
from fumehood.runtime.nats.connection import Received, loop_time
from fumehood.runtime.nats.directory import Directory, keys_of
from fumehood.runtime.nats.homes import AgentHomes
from fumehood.runtime.nats.replies import NatsReplies, Outbox
from fumehood.runtime.nats.requests import ELSEWHERE, Requests, read_texts
from fumehood.runtime.nats.subjects import Address, Parcel, Subjects, sender_token
from fumehood.runtime.registry import Registry
from fumehood.runtime.scheduler import Scheduler

_MOST_WAITING = 100_000
_QUESTIONS_AT_ONCE, _QUESTIONS_PER_SECOND, _MOST_PROCESSES = 40, 20, 10_000
_log = logging.getLogger(__name__)


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
    """Receives requests, answers, cancellations and probes.

    What can be judged by what is known here is done at once, where it was read. A request for which the directory has
    to be asked, or a refusal recorded, is done by a task, and everything behind it waits for that.
    """

    def __init__(self, parts: ReceptionParts) -> None:
        self._parts = parts
        self._group: TaskGroup | None = None
        self._waiting: deque[Received] = deque()
        self._wanted = anyio.Event()
        self._questions: dict[str, TokenBucket] = {}
        """By the process whose messages lead to them."""
        self.is_stopped = False

    async def run(self) -> None:
        async with anyio.create_task_group() as group:
            self._group = group
            while True:
                while self._waiting:
                    await self._take_waiting(self._waiting[0])
                    self._waiting.popleft()
                self._wanted = anyio.Event()
                await self._wanted.wait()

    def take(self, message: Received) -> None:
        if not self._waiting and self._take_now(message):
            return
        if len(self._waiting) < _MOST_WAITING:  # its sender finds out that more are lost, by a probe
            self._waiting.append(message)
            self._wanted.set()

    async def _take_waiting(self, message: Received) -> None:
        try:
            if not self._take_now(message):
                await self._ask(self._parts.subjects.read_to(message.subject), message.data)
        except Exception:
            _log.exception("a message of another process could not be taken")

    def _take_now(self, message: Received) -> bool:
        """False for a request that takes longer."""
        parts = self._parts
        if not message.subject.startswith(parts.subjects.to_all(parts.homes.address).removesuffix(">")):
            return True
        parcel = parts.subjects.read_to(message.subject)
        if not self._is_sent_by_process(parcel, message):
            return True
        match parcel.kind:
            case "ask":
                return self._ask_now(parcel, message.data)
            case "answer":
                parts.requests.answered(parcel, message)
            case "cancel":
                self._cancel(parcel, message.data.decode(errors="replace"))
            case "probe":
                unknown = [each for each in read_texts(message.data) if not parts.replies.knows(each)]
                reply = parts.subjects.to(parcel.by, parts.homes.address, "probed")
                parts.outbox.put(reply, json.dumps(unknown).encode())
            case "probed":
                parts.requests.probed(parcel, message)
            case _:
                pass
        return True

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

    def _ask_now(self, parcel: Parcel, data: bytes) -> bool:
        envelope = self._read(data)
        if envelope is None or self._is_duplicate(envelope):
            return True
        if envelope.chain or self._judge(parcel, envelope) is not None:
            return False
        parts = self._parts
        parts.replies.expect(envelope, parcel.by)
        try:
            is_placed = parts.scheduler.offer(envelope, None)
        except (DeliveryError, MessageError):
            is_placed = False
        if not is_placed:
            parts.replies.withdraw(envelope.message_id, parcel.by)
        return is_placed

    async def _ask(self, parcel: Parcel, data: bytes) -> None:
        envelope = self._read(data)
        if envelope is None or self._is_duplicate(envelope):
            return
        try:
            await self._check(parcel, envelope)
        except FumehoodError as error:
            await self._refuse(parcel.by, envelope, error)
            return
        self._parts.replies.expect(envelope, parcel.by)
        await self._accept(parcel.by, envelope)

    def _read(self, data: bytes) -> Envelope | None:
        try:
            envelope = Envelope.from_bytes(data, loop_time(), time.time())
        except MessageError:
            # There is no id to answer to; a probe of its sender finds that it is not known.
            return None
        return envelope if envelope.topic is None else None

    def _is_duplicate(self, envelope: Envelope) -> bool:
        parts = self._parts
        return parts.replies.knows(envelope.message_id) or envelope.message_id in parts.dispatcher.answering

    async def _check(self, parcel: Parcel, envelope: Envelope) -> None:
        """Raises why it is refused. Entries by which that is decided are read anew first: this copy may be behind."""
        read: set[str] = set()
        while (refusal := self._judge(parcel, envelope)) is not None:
            keys = set(refusal.keys) - read
            if not keys or not self._may_ask(parcel.by.process):
                if refusal.denied is not None:
                    await self._parts.audit.record(refusal.denied, agent=str(envelope.sender))
                raise refusal.error
            for key in keys:
                await self._parts.directory.refresh(key)
            read |= keys

    def _may_ask(self, process: str) -> bool:
        """Questions to the directory take longer than messages, and everything behind them waits."""
        if len(self._questions) > _MOST_PROCESSES:
            self._questions.clear()
        bucket = self._questions.setdefault(process, TokenBucket(_QUESTIONS_AT_ONCE, _QUESTIONS_PER_SECOND))
        return bucket.take()

    def _judge(self, parcel: Parcel, envelope: Envelope) -> _Refusal | None:
        """By what this process knows."""
        parts, sender, by = self._parts, envelope.sender, parcel.by
        if self.is_stopped:
            return _Refusal(StoppedError("the runtime is stopped and accepts no more messages"))
        if not parts.directory.is_current(by):
            error = RefusedError(f"the process {by.process} has lost its lease, or was started anew")
            return _Refusal(error, (f"process.{by.process}",))
        if parcel.detail != sender_token(sender):
            return _Refusal(RefusedError(f"the process {by.process} sent a message in the name of {sender}"))
        if sender is not None:
            if parts.directory.home(sender) != by:
                error = RefusedError(f"the process {by.process} is not the home of {sender}")
                return _Refusal(error, keys_of(sender.type))
            if not parts.registry.grants_of(sender).may_send(sender.key, envelope.to):
                error = RefusedError(f"{sender} may not send to {envelope.to}: its grants do not say so")
                return _Refusal(error, denied=GrantDenied("send to", str(envelope.to)))
        if envelope.hops > parts.limits.hops:
            name = envelope.payload.name[:80]
            return _Refusal(LoopError(f"{name} to {envelope.to} is hop {envelope.hops} of one conversation"))
        if not parts.homes.is_here(envelope.to):
            error = _ElsewhereError(f"the process {parts.homes.address.process} is not its home")
            return _Refusal(error, keys_of(envelope.to.type))
        return None

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


@dataclass(frozen=True, slots=True)
class _Refusal:
    error: FumehoodError
    keys: tuple[str, ...] = ()
    """Entries of the directory that may say otherwise by now."""
    denied: GrantDenied | None = None


class _ElsewhereError(RefusedError):
    """This process is not the home of the recipient."""
