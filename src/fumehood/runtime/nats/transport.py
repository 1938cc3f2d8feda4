"""The transport of a runtime on NATS: to an agent's queue here, to the process that is its home, or to the stream."""

from __future__ import annotations

from collections.abc import Callable

from fumehood.errors import DeliveryError, MessageError
from fumehood.runtime.dispatch import Dispatcher
from fumehood.runtime.envelopes import Envelope
from fumehood.runtime.mailbox import Delivery
from fumehood.runtime.messages import MessageTypes
from fumehood.runtime.nats.directory import Directory, TypeEntry
from fumehood.runtime.nats.homes import AgentHomes
from fumehood.runtime.nats.publication_store import PublicationStore
from fumehood.runtime.nats.requests import Requests
from fumehood.runtime.nats.subjects import Address
from fumehood.runtime.registry import unknown_type
from fumehood.runtime.scheduler import Scheduler, no_handler


class NatsTransport:
    """Implements `Transport`."""

    def __init__(
        self,
        directory: Directory,
        homes: AgentHomes,
        requests: Requests,
        store: PublicationStore,
        scheduler: Scheduler,
        dispatcher: Dispatcher,
        types: MessageTypes,
        check_not_stopped: Callable[[], None],
    ) -> None:
        self._directory, self._homes, self._requests, self._store = directory, homes, requests, store
        self._scheduler, self._dispatcher, self._types = scheduler, dispatcher, types
        self._check_not_stopped = check_not_stopped

    async def deliver(self, envelope: Envelope, asker: Delivery | None) -> None:
        self._check_not_stopped()
        await self._homes.settle(envelope.to)
        if self._homes.is_here(envelope.to):
            await self._scheduler.deliver(envelope, asker)
        else:
            self._requests.send(envelope, await self._home(envelope))

    async def publish(self, envelopes: list[Envelope], publisher: Delivery | None) -> None:
        self._check_not_stopped()
        for envelope in envelopes:
            entry = self._directory.type(envelope.to.type)
            if entry is not None:
                self._check_schema(envelope, entry)
        await self._store.store(envelopes)

    def abandon(self, envelope: Envelope) -> None:
        if not self._requests.abandon(envelope):
            self._dispatcher.abandon(envelope.message_id)

    async def _home(self, envelope: Envelope) -> Address:
        agent = envelope.to
        home = self._directory.home(agent)
        if home is None:
            await self._directory.refresh_type(agent.type)
            home = self._directory.home(agent)
        entry = self._directory.type(agent.type)
        if entry is None:
            raise unknown_type(agent.type, (type for type, _ in self._directory.types()))
        self._check_schema(envelope, entry)
        if home is None:
            raise DeliveryError(
                f"no process has the agent type {agent.type!r} at the moment; start one that registers it"
            )
        if home == self._homes.address or not self._homes.is_member:
            raise DeliveryError(
                f"{envelope.payload.name} to {agent} was not sent: this process was without NATS for longer than its "
                "lease; it goes on when it has a new one"
            )
        return home

    def _check_schema(self, envelope: Envelope, entry: TypeEntry) -> None:
        """A message that the recipient would read with another schema is not sent."""
        name = envelope.payload.name
        digest = entry.takes.get(name)
        if digest is None:
            raise no_handler(envelope, entry.takes)
        if digest != self._types.digest_of(name):
            raise MessageError(
                f"{name} is another message where {envelope.to} is: its fields differ from those in this process; run "
                'the same version everywhere, or give the changed message a new name: class X(Message, name="...")'
            )
