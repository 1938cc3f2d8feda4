"""The runtime over processes and hosts: the local runtime with another transport, registry and replies.

    subjects, connection     names and permissions | the client of NATS
    directory, homes         what all processes know | which agents are here; assignment.py says where they should be
    membership               the lease of this process
    requests, reception      to agents elsewhere | from processes elsewhere, checked
    publication_store, publications  to a stream | from it
    transport                which of these ways a message takes

This module assembles them, and owns start, stop, and what happens when the lease is lost.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from types import TracebackType
from typing import Self

import anyio

from fumehood.cluster.credentials import MemberCredentials
from fumehood.cluster.stream_accounts import STREAMS_API
from fumehood.errors import AgentLostError, DeliveryError, StoppedError, UsageError
from fumehood.keywords import known_keywords
from fumehood.policy import Seconds, read_seconds
from fumehood.policy.audit import Kept
from fumehood.runtime.agent import Registration
from fumehood.runtime.dead_letters import Reason
from fumehood.runtime.dispatch import Replies
from fumehood.runtime.identity import Pattern
from fumehood.runtime.interceptors import Interceptor
from fumehood.runtime.interface import RuntimeLimits
from fumehood.runtime.local import LocalRuntime
from fumehood.runtime.nats.connection import NatsConnection, NatsLink, open_link
from fumehood.runtime.nats.directory import Directory, prepare_space
from fumehood.runtime.nats.homes import AgentHomes
from fumehood.runtime.nats.membership import Membership
from fumehood.runtime.nats.publication_store import PublicationStore
from fumehood.runtime.nats.publications import PublicationParts, Publications
from fumehood.runtime.nats.reception import Reception, ReceptionParts
from fumehood.runtime.nats.replies import NatsReplies, Outbox
from fumehood.runtime.nats.requests import Requests
from fumehood.runtime.nats.shared_registry import SharedRegistry, SharedSubscriptions
from fumehood.runtime.nats.subjects import Subjects, check_name
from fumehood.runtime.nats.transport import NatsTransport
from fumehood.runtime.registry import Registry, Subscriptions
from fumehood.runtime.router import Transport
from fumehood.runtime.toolbox import MakeGate
from fumehood.sandbox.audit import AuditChoice
from fumehood.sandbox.interface import Opener
from fumehood.tools import STANDARD, Tool
from fumehood.tools import Function as ToolFunction

_LEASE_SECONDS = 15.0
_IDLE_SECONDS = 0.02
_RETRY_SECONDS = 0.2


class NatsRuntime(LocalRuntime):
    """`async with NatsRuntime(credentials="coder-1.creds") as runtime`, as with a `LocalRuntime`.

    `credentials` is a file of `hood cluster credentials`, which says where NATS is and what this process is called.
    Without it, `process` is the name that the connection's user may use, or else the process gets a new one. Runtimes
    in different spaces do not see each other. An agent that is lost with its process gets a new home after `lease`,
    which must be longer than NATS needs to elect a leader. `replicas` is on how many servers the streams are, if they
    are created.
    """

    @known_keywords()
    def __init__(
        self,
        connection: NatsConnection | str | None = None,
        *,
        credentials: str | os.PathLike[str] | None = None,
        process: str | None = None,
        space: str = "default",
        lease: Seconds = _LEASE_SECONDS,
        replicas: int = 1,
        limits: RuntimeLimits | None = None,
        audit: AuditChoice = None,
        keep: Kept = "digest",
        interceptors: Sequence[Interceptor] = (),
        tools: Sequence[Tool | ToolFunction] = STANDARD,
        gate: MakeGate | None = None,
        sandboxes: Opener | None = None,
    ) -> None:
        member = None if credentials is None else MemberCredentials.read(credentials)
        self._settings = _settings(connection, member)
        self._process = check_name(_process_name(process, member), "a process's name")
        self._subjects = Subjects(space) if member is None else Subjects(space, STREAMS_API)
        self._replicas = replicas
        seconds = read_seconds(lease, "lease") if isinstance(lease, str) else float(lease)
        if not 0 < seconds < float("inf"):
            raise UsageError(f"a lease must be more than 0 seconds and less than infinity; this is {lease!r}")
        self._directory = Directory(self._subjects)
        self._membership = Membership(self._directory, self._process, seconds)
        self._outbox = Outbox()
        super().__init__(
            limits=limits,
            audit=audit,
            keep=keep,
            interceptors=interceptors,
            tools=tools,
            gate=gate,
            sandboxes=sandboxes,
        )
        self._stack = AsyncExitStack()
        self._link: NatsLink | None = None
        self._unshared: list[tuple[Registration, Mapping[str, str], Sequence[Pattern]]] = []
        """Types that were registered before the start."""
        self._directory.changed.append(self._follow_directory)

    @property
    def process(self) -> str:
        """The name of this process, by which others know it."""
        return self._process

    @property
    def _linked(self) -> NatsLink:
        assert self._link is not None
        return self._link

    # Parts

    def _make_registry(self) -> Registry:
        return SharedRegistry(self._limits, lambda work: self._scheduler.slots.submit(work), self._directory)

    def _make_subscriptions(self) -> Subscriptions:
        return SharedSubscriptions(self._limits.subscriptions, self._directory)

    def _make_replies(self) -> Replies:
        self._replies = NatsReplies(self._subjects, self._membership, self._pending, self._outbox)
        return self._replies

    def _make_transport(self) -> Transport:
        self._homes = AgentHomes(self._directory, self._membership, self._registry)
        self._requests = Requests(
            self._subjects, self._directory, self._membership, self._pending, self._dead_letters, self._outbox
        )
        self._reception = Reception(
            ReceptionParts(
                self._subjects,
                self._directory,
                self._homes,
                self._registry,
                self._requests,
                self._replies,
                self._outbox,
                self._scheduler,
                self._dispatcher,
                self._dead_letters,
                self._audit,
                self._limits,
            )
        )
        self._publications = Publications(
            PublicationParts(
                self._subjects,
                self._homes,
                self._registry,
                self._outbox,
                self._scheduler,
                self._dead_letters,
                self._audit,
            ),
            self._membership.lease_seconds,
        )
        self._replies.publication_finished = self._publications.finished
        self._store = PublicationStore(self._subjects, self._process, self._dead_letters)
        return NatsTransport(
            self._directory,
            self._homes,
            self._requests,
            self._store,
            self._scheduler,
            self._dispatcher,
            self._types,
            self._check_not_stopped,
        )

    # Start and stop

    async def __aenter__(self) -> Self:
        self._check_new()
        async with AsyncExitStack() as stack:
            link = await stack.enter_async_context(
                open_link(self._settings, self._process, self._subjects.inbox(self._process), self._requests.refused)
            )
            await prepare_space(link, self._subjects, self._replicas)
            await self._directory.open(link)
            await self._membership.join()
            await super().__aenter__()
            self._stack = stack.pop_all()
        try:
            await self._begin(link)
        except BaseException as error:
            await self.__aexit__(type(error), error, error.__traceback__)
            raise
        return self

    async def _begin(self, link: NatsLink) -> None:
        self._link = self._store.link = link
        assert self._group is not None
        self._unsubscribe = await link.listen(self._subjects.to_all(self._homes.address), self._reception.take)
        await link.flush()
        link.reconnected.append(self._reconnected)
        self._group.start_soon(self._outbox.run, link)
        self._group.start_soon(self._reception.run)
        self._group.start_soon(self._requests.run)
        self._group.start_soon(self._publications.run, link)
        self._group.start_soon(self._homes.run)
        self._group.start_soon(self._hold_lease)
        for each in self._unshared:
            await self._homes.share(*each)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        async with self._stack:
            await super().__aexit__(kind, error, traceback)

    async def _end(self) -> None:
        self._reception.is_stopped = True
        self._publications.end()
        await super()._end()
        self._replies.fail_all(StoppedError("the runtime was stopped before there was an answer"))
        with suppress(DeliveryError), anyio.move_on_after(self._limits.stop_seconds):
            await self._homes.leave()
            await self._membership.leave()
            await self._outbox.send_all(self._linked)
            await self._linked.flush()

    async def idle(self) -> None:
        await super().idle()
        while not await self._publications.is_idle():
            await anyio.sleep(_IDLE_SECONDS)
            await super().idle()

    # The directory and the lease

    def _follow_directory(self, key: str) -> None:
        if not key.startswith("process."):
            self._publications.follow()
        self._homes.notice()

    def _reconnected(self) -> None:
        assert self._group is not None
        self._group.start_soon(self._reload)

    async def _reload(self) -> None:
        while True:
            try:
                await self._directory.reload()
                return
            except DeliveryError:
                await anyio.sleep(_RETRY_SECONDS)

    async def _hold_lease(self) -> None:
        while True:
            await self._membership.keep()
            await self._fence()
            while True:
                try:
                    await self._begin_anew()
                    break
                except (DeliveryError, UsageError):
                    await anyio.sleep(_RETRY_SECONDS)

    async def _begin_anew(self) -> None:
        await self._reload()
        await self._membership.join()
        self._unsubscribe = await self._linked.listen(self._subjects.to_all(self._homes.address), self._reception.take)
        await self._homes.join_again()
        self._publications.follow()

    async def _fence(self) -> None:
        """Ends every agent: other processes may be their homes by now."""
        await self._unsubscribe()
        self._publications.end()
        self._replies.forget()
        await self._requests.fail_all(
            AgentLostError(f"the process {self._process} has lost its connection for too long")
        )
        for mailbox in self._registry.mailboxes():
            while (envelope := mailbox.take()) is not None:
                await self._dead_letters.record(envelope, Reason.LOST, "its process has lost its lease")
                mailbox.refill()
            for delivery in mailbox.deliveries:
                delivery.cancel(Reason.LOST)
        for delivery in tuple(self._dispatcher.answering.values()):
            delivery.cancel(Reason.LOST)
        with anyio.move_on_after(self._limits.stop_seconds):
            await self._scheduler.wait_idle()
            for mailbox in self._registry.mailboxes():
                await self._end_agent(mailbox)

    # Agents and messages

    async def _share(self, registration: Registration, subscriptions: Sequence[Pattern]) -> None:
        takes = {name: self._types.digest_of(name) for name in registration.takes}
        if self._link is None:
            self._unshared.append((registration, takes, subscriptions))
            return
        await self._homes.share(registration, takes, subscriptions)
        self._publications.follow()


def _settings(connection: NatsConnection | str | None, member: MemberCredentials | None) -> NatsConnection:
    if isinstance(connection, NatsConnection):
        if member is not None:
            raise UsageError("a NatsConnection has its own credentials; give the address of NATS with `credentials`")
        return connection
    if member is not None:
        return NatsConnection.of_member(member, connection)
    return NatsConnection() if connection is None else NatsConnection(connection)


def _process_name(given: str | None, member: MemberCredentials | None) -> str:
    if member is None:
        return given or f"process-{secrets.token_hex(6)}"
    if given not in (None, member.name):
        raise UsageError(f"the credentials are those of the process {member.name!r}, not of {given!r}")
    return member.name
