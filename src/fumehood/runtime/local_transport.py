"""The transport of the local runtime: envelopes go into mailboxes of this process."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from fumehood.errors import DeliveryError, MessageError, OverloadedError
from fumehood.runtime.dead_letters import DeadLetterRecorder, Reason, reason_of
from fumehood.runtime.dispatch import Dispatcher
from fumehood.runtime.envelopes import Envelope
from fumehood.runtime.mailbox import Delivery
from fumehood.runtime.scheduler import Scheduler


class LocalTransport:
    """Implements `Transport`; `transfer` makes the recipient's envelope of the sender's, or raises StoppedError."""

    def __init__(
        self,
        scheduler: Scheduler,
        dispatcher: Dispatcher,
        dead_letters: DeadLetterRecorder,
        transfer: Callable[[Envelope], Envelope],
    ) -> None:
        self._scheduler, self._dispatcher = scheduler, dispatcher
        self._dead_letters, self._transfer = dead_letters, transfer

    async def deliver(self, envelope: Envelope, asker: Delivery | None) -> None:
        await self._scheduler.deliver(self._transfer(envelope), asker)

    def abandon(self, envelope: Envelope) -> None:
        self._dispatcher.abandon(envelope.message_id)

    async def publish(self, envelopes: list[Envelope], publisher: Delivery | None) -> None:
        """Delivers to each recipient; a full queue delays the sender only, not the other recipients.

        OverloadedError if waiting would never end; the other recipients have received it by then.
        """
        waiting = [envelope for envelope in envelopes if not await self._offer(envelope, publisher)]
        full: list[OverloadedError] = []
        if waiting:
            async with anyio.create_task_group() as group:
                for envelope in waiting:
                    group.start_soon(self._wait_for_room, envelope, publisher, full)
        if full:
            raise full[0]

    async def _wait_for_room(self, envelope: Envelope, publisher: Delivery | None, full: list[OverloadedError]) -> None:
        with anyio.CancelScope(deadline=envelope.deadline) as scope:
            try:
                await self.deliver(envelope, publisher)
            except (DeliveryError, MessageError) as error:
                full += [error] if isinstance(error, OverloadedError) else []
                await self._dead_letters.record(envelope, reason_of(error), str(error))
        if scope.cancelled_caught:
            await self._dead_letters.record(envelope, Reason.OVERLOADED, f"the queue of {envelope.to} stayed full")

    async def _offer(self, envelope: Envelope, publisher: Delivery | None) -> bool:
        """Whether it is accepted or a dead letter; False if there is no room yet."""
        try:
            return self._scheduler.offer(self._transfer(envelope), publisher)
        except (DeliveryError, MessageError) as error:
            await self._dead_letters.record(envelope, reason_of(error), str(error))
            return True
