"""Publications for agents of this process, which wait in a stream until the home of their recipient takes them.

The home of a partition takes its messages in order. It acknowledges one before it is handled, so that a message is
handled at most once; with `redeliver` afterwards, so that it is handled at least once. What NATS delivers a second time
is recognised.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, cast

import anyio
from anyio.abc import TaskGroup

from fumehood.errors import (
    DeliveryError,
    MessageError,
    RefusedError,
)
from fumehood.runtime.audit import GrantDenied, RuntimeAudit
from fumehood.runtime.dead_letters import DeadLetterRecorder, Reason, reason_of
from fumehood.runtime.envelopes import Envelope, chain_link
from fumehood.runtime.nats.connection import NatsLink, Received, loop_time
from fumehood.runtime.nats.homes import AgentHomes
from fumehood.runtime.nats.replies import Outbox
from fumehood.runtime.nats.subjects import Subjects
from fumehood.runtime.registry import Registry
from fumehood.runtime.scheduler import Scheduler

_BATCH = 64
_PULL_SECONDS = 20.0
_ATTEMPT_SECONDS = 2.0
_RETRY_SECONDS = 0.1
_MOST_REMEMBERED = 100_000
_MOST_WAITS = 2
"""What was not acknowledged is delivered again after the time for it; NATS looks as often as that."""
_MOST_DELIVERIES = 5
"""After so many attempts a message that takes its process down each time is a dead letter."""
_ACKNOWLEDGED, _NEVER = b"+ACK", b"+TERM"
_LATER = b'-NAK {"delay": 200000000}'
"""In a fifth of a second."""
_NO_HOME = "this process was no longer the home of its recipient when it was to be handled"
_ENDED = Received("", "", b"", "ended", {})


@dataclass(frozen=True, slots=True)
class PublicationParts:
    """The parts of a runtime that publications use."""

    subjects: Subjects
    homes: AgentHomes
    registry: Registry
    outbox: Outbox
    scheduler: Scheduler
    dead_letters: DeadLetterRecorder
    audit: RuntimeAudit


@dataclass(slots=True, eq=False)
class _Partition:
    type: str
    number: int
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    arrived: asyncio.Queue[Received] = field(default_factory=lambda: asyncio.Queue[Received]())
    active: float = field(default_factory=loop_time)
    """When a message came last, or the connection did."""


@dataclass(slots=True)
class _Taken:
    """A message on its way from the stream to its agent's queue."""

    envelope: Envelope
    reply: str
    is_acknowledged: bool = False


class Publications:
    """Takes publications for agents whose home this process is."""

    def __init__(self, parts: PublicationParts, lease_seconds: float) -> None:
        self._parts, self._acknowledge_seconds = parts, max(1.0, lease_seconds)
        self._partitions: dict[str, _Partition] = {}
        self._handled: OrderedDict[str, None] = OrderedDict()
        self._unacknowledged: dict[str, str] = {}
        """Where to acknowledge messages that are being handled."""
        self._arriving = 0
        self._link: NatsLink | None = None
        self._group: TaskGroup | None = None

    @property
    def _linked(self) -> NatsLink:
        assert self._link is not None
        return self._link

    async def run(self, link: NatsLink) -> None:
        self._link = link
        link.reconnected.append(self._pull_again)
        async with anyio.create_task_group() as group:
            self._group = group
            self.follow()
            await anyio.sleep_forever()

    def follow(self) -> None:
        """Begins and ends to take messages, as the directory says which partitions are at home here."""
        if self._group is None:
            return
        names = {self._parts.subjects.consumer(*each): each for each in self._parts.homes.partitions()}
        for name in [name for name in self._partitions if name not in names]:
            self._partitions.pop(name).scope.cancel()
        for name, (type, number) in names.items():
            if name not in self._partitions:
                partition = self._partitions[name] = _Partition(type, number)
                self._group.start_soon(self._take_all, name, partition)

    def end(self) -> None:
        """Takes nothing any more."""
        for partition in self._partitions.values():
            partition.scope.cancel()
        self._partitions.clear()
        self._unacknowledged.clear()

    def _pull_again(self) -> None:
        for partition in self._partitions.values():
            partition.active = loop_time()
            partition.arrived.put_nowait(_ENDED)

    async def _take_all(self, name: str, partition: _Partition) -> None:
        inbox = f"{self._parts.subjects.inbox(self._parts.homes.address.process)}.pull.{secrets.token_hex(8)}"

        async def arrive(message: Received) -> None:
            if message.status or message.reply.startswith("$JS.ACK."):
                partition.arrived.put_nowait(message)

        with partition.scope:
            unsubscribe = await self._linked.subscribe(inbox, arrive)
            try:
                await self._retry(lambda: self._create_consumer(name, partition))
                while True:
                    await self._retry(lambda: self._pull(name, inbox))
                    await self._take_batch(partition)
            finally:
                # NATS gives nothing more to a pull whose inbox is gone: the messages are the next home's.
                with anyio.CancelScope(shield=True):
                    await unsubscribe()

    async def _retry(self, attempt: Callable[[], Awaitable[object]]) -> None:
        """Until NATS is back."""
        while True:
            try:
                await attempt()
                return
            except DeliveryError:
                await anyio.sleep(_RETRY_SECONDS)

    async def _create_consumer(self, name: str, partition: _Partition) -> dict[str, Any]:
        """What NATS knows of the consumer, if it exists already."""
        subjects = self._parts.subjects
        stream, wanted = subjects.publication_stream, subjects.publications(partition.type, partition.number)
        config = {
            "durable_name": name,
            "name": name,
            "filter_subject": wanted,
            "ack_policy": "explicit",
            "ack_wait": int(self._acknowledge_seconds * 1e9),
            "deliver_policy": "all",
            "max_deliver": -1,
        }
        question = {"stream_name": stream, "config": config}
        return await self._linked.call(subjects.api("CONSUMER.CREATE", stream, name, wanted), question)

    async def _pull(self, name: str, inbox: str) -> None:
        subjects = self._parts.subjects
        question = json.dumps({"batch": _BATCH, "expires": int(_PULL_SECONDS * 1e9)}).encode()
        subject = subjects.api("CONSUMER.MSG.NEXT", subjects.publication_stream, name)
        await self._linked.publish(subject, question, inbox)

    async def _take_batch(self, partition: _Partition) -> None:
        """Until so many were taken as were asked for, or NATS says that there are no more."""
        left = _BATCH
        while left > 0:
            messages: list[Received] = []
            with anyio.move_on_after(_PULL_SECONDS + 1):
                messages.append(await partition.arrived.get())
            while not partition.arrived.empty():
                messages.append(partition.arrived.get_nowait())
            fresh = [message for message in messages if not message.status]
            left -= len(fresh)
            if fresh:
                partition.active = loop_time()
                await self._take(fresh)
            if not messages or len(fresh) < len(messages):
                return

    async def _take(self, messages: list[Received]) -> None:
        self._arriving += 1
        taken: list[_Taken] = []
        try:
            for message in messages:
                if (envelope := await self._open(message)) is not None:
                    taken += [_Taken(envelope, message.reply)]
            if taken and self._is_redelivered(taken[0].envelope):
                self._unacknowledged.update({_key(each.envelope): each.reply for each in taken})
            else:
                async with anyio.create_task_group() as group:
                    for each in taken:
                        group.start_soon(self._acknowledge, each)
            while taken:
                await self._hand_in(taken[0].envelope)
                taken.pop(0)
        finally:
            self._arriving -= 1
            if taken:
                with anyio.CancelScope(shield=True):
                    await self._give_up(taken)

    async def _give_up(self, taken: list[_Taken]) -> None:
        """The lease was lost meanwhile: another process handles what was not acknowledged."""
        for each in taken:
            self._handled.pop(_key(each.envelope), None)
            self._unacknowledged.pop(_key(each.envelope), None)
            if each.is_acknowledged:
                await self._parts.dead_letters.record(each.envelope, Reason.LOST, _NO_HOME)

    async def _open(self, message: Received) -> Envelope | None:
        """The envelope, if it is to be handled here and now."""
        if not self._parts.subjects.is_publication(message.subject):
            # Without the subject nothing proves its sender.
            self._parts.outbox.put(message.reply, _LATER)
            return None
        try:
            envelope = Envelope.from_bytes(message.data, loop_time(), time.time())
        except MessageError:
            self._parts.outbox.put(message.reply, _NEVER)
            return None
        key = _key(envelope)
        if key in self._unacknowledged:
            # It is being handled: the next answer goes to the newer address.
            self._unacknowledged[key] = message.reply
        elif key in self._handled:
            self._parts.outbox.put(message.reply, _ACKNOWLEDGED)
        elif not self._parts.homes.is_here(envelope.to):
            self._parts.outbox.put(message.reply, _LATER)
        elif self._is_redelivered(envelope) and int(message.reply.split(".")[4]) > _MOST_DELIVERIES:
            self._parts.outbox.put(message.reply, _NEVER)
            reason = f"it was delivered {_MOST_DELIVERIES} times, and each time its handler was lost with its process"
            await self._parts.dead_letters.record(envelope, Reason.LOST, reason)
        elif (error := self._refusal(message.subject, envelope)) is not None:
            self._parts.outbox.put(message.reply, _NEVER)
            await self._parts.audit.record(GrantDenied("publish to", str(envelope.topic)), agent=str(envelope.sender))
            await self._parts.dead_letters.record(envelope, Reason.REFUSED, str(error))
        else:
            self._remember(key)
            return envelope
        return None

    def _is_redelivered(self, envelope: Envelope) -> bool:
        return self._parts.registry.registration(envelope.to.type).is_redelivered

    def _refusal(self, subject: str, envelope: Envelope) -> RefusedError | None:
        """The subject proves the process and the sender's type, and is that of the recipient; both ends need grants."""
        process, sender, topic = self._parts.subjects.publisher(subject), envelope.sender, envelope.topic
        if subject != self._parts.subjects.publication(envelope.to, process, sender) or topic is None:
            return RefusedError(f"the process {process} published a message in the name of {sender}, or under another")
        grants_of = self._parts.registry.grants_of
        if sender is not None and not grants_of(sender).may_publish(sender.key, topic):
            return RefusedError(f"{sender} may not publish to {topic}: its grants do not say so")
        if not grants_of(envelope.to).may_receive(envelope.to.key, topic):
            return RefusedError(f"{envelope.to} may not receive from {topic}: its grants do not say so")
        return None

    def _remember(self, key: str) -> None:
        self._handled[key] = None
        if len(self._handled) > _MOST_REMEMBERED:
            self._handled.popitem(last=False)

    async def _acknowledge(self, taken: _Taken) -> None:
        """Until NATS has confirmed it: another process would get the message otherwise."""
        while not taken.is_acknowledged:
            try:
                await self._linked.request(taken.reply, _ACKNOWLEDGED, seconds=_ATTEMPT_SECONDS)
                taken.is_acknowledged = True
            except DeliveryError:
                await anyio.sleep(_RETRY_SECONDS)

    async def _hand_in(self, envelope: Envelope) -> None:
        scheduler, dead_letters = self._parts.scheduler, self._parts.dead_letters
        if not self._parts.homes.is_here(envelope.to):
            self._unacknowledged.pop(_key(envelope), None)
            await dead_letters.record(envelope, Reason.LOST, _NO_HOME)
            return
        try:
            if not scheduler.offer(envelope, None):
                await scheduler.deliver(envelope, None)
        except (DeliveryError, MessageError) as error:
            self.finished(envelope)
            await dead_letters.record(envelope, reason_of(error), str(error))

    def finished(self, envelope: Envelope) -> None:
        """It was handled, or is a dead letter: now a message that may be delivered again is acknowledged."""
        reply = self._unacknowledged.pop(_key(envelope), None)
        if reply is not None:
            self._parts.outbox.put(reply, _ACKNOWLEDGED)

    # Waiting for the end

    async def is_idle(self) -> bool:
        """Whether no stored message waits to be taken by this process."""
        if self._arriving:
            return False
        if self._link is None:  # stopped before it began
            return True
        subjects = self._parts.subjects
        question = {"subjects_filter": f"{subjects.root}.publication.>"}
        try:
            info = await self._linked.call(subjects.api("STREAM.INFO", subjects.publication_stream), question)
        except DeliveryError:
            return True
        stored = cast("dict[str, int]", info["state"].get("subjects") or {})
        names = set(map(_partition_name, stored))
        for type, number in self._parts.homes.partitions():
            if f"{number}.{type.replace('.', '/')}" in names and await self._is_awaited(type, number):
                return False
        return not self._arriving

    async def _is_awaited(self, type: str, number: int) -> bool:
        """Whether NATS will still deliver something of this partition, in whose subject messages are stored.

        A NATS server that is killed may store again what was acknowledged and removed, and wait for acknowledgements of
        what is no longer stored. It delivers neither.
        """
        name = self._parts.subjects.consumer(type, number)
        partition = self._partitions.get(name)
        if partition is None:
            return True
        try:
            known = await self._create_consumer(name, partition)
        except DeliveryError:
            return True
        if known["num_pending"] or not known["num_ack_pending"]:
            return bool(known["num_pending"])
        return loop_time() - partition.active < _MOST_WAITS * self._acknowledge_seconds


def _partition_name(subject: str) -> str:
    parts = subject.split(".")
    return f"{parts[3]}.{parts[6]}"


def _key(envelope: Envelope) -> str:
    return chain_link(envelope.message_id, envelope.to)
