"""The runtime in this process, on asyncio or trio.

    router      checks the grants, encodes, intercepts and records a message, and hands it to the scheduler
    scheduler   queues it in a mailbox and starts its handler in a task
    dispatch    calls the handler, records, returns the answer
    registry    types of agents, existing agents, grants and subscriptions

This module assembles them and owns start and stop.
"""

from __future__ import annotations

import builtins
import inspect
import os
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from enum import Enum, auto
from types import TracebackType
from typing import Self, TypeVar, overload

import anyio
from anyio.abc import TaskGroup

from fumehood.audit.log import current_user
from fumehood.errors import AuditError, NotGrantedError, StoppedError, UsageError
from fumehood.keywords import known_keywords
from fumehood.policy import Seconds
from fumehood.policy.audit import Kept
from fumehood.runtime.agent import Function, Make, Registration, RuntimeAgent, handlers_of
from fumehood.runtime.audit import (
    AgentGranted,
    AgentRegistered,
    AgentStopped,
    RuntimeAudit,
    RuntimeStarted,
    RuntimeStopped,
)
from fumehood.runtime.context import MessageContext
from fumehood.runtime.dead_letters import DeadLetterRecorder, DeadLetters, Reason
from fumehood.runtime.dispatch import Dispatcher, Replies
from fumehood.runtime.envelopes import Envelope, ReplyFailure
from fumehood.runtime.grants import Grants
from fumehood.runtime.identity import AgentId, Pattern, TopicId, check_type
from fumehood.runtime.interceptors import Interceptor, Interceptors
from fumehood.runtime.interface import Runtime, RuntimeLimits
from fumehood.runtime.local_link import LocalLink, RuntimeParts
from fumehood.runtime.local_transport import LocalTransport
from fumehood.runtime.mailbox import Delivery, Mailbox
from fumehood.runtime.messages import MessageTypes
from fumehood.runtime.pending import PendingRequests
from fumehood.runtime.registry import Registry, Subscription, Subscriptions, as_json, as_state, read_states
from fumehood.runtime.router import Origin, Router, Transport
from fumehood.runtime.scheduler import Scheduler
from fumehood.runtime.toolbox import MakeGate
from fumehood.sandbox.audit import AuditChoice, find_trail
from fumehood.sandbox.interface import Opener
from fumehood.tools import STANDARD, Tool, as_tools
from fumehood.tools import Function as ToolFunction

T = TypeVar("T")


class _Phase(Enum):
    NEW = auto()
    RUNNING = auto()
    STOPPING = auto()
    STOPPED = auto()


class LocalRuntime(Runtime):
    """`async with LocalRuntime() as runtime`: leaving the block waits for running handlers; an error cancels them.

    `audit` selects the log as for a sandbox; `keep` decides how much of the messages' content it stores. `tools` are
    those that can be granted, and `gate` creates the gate that decides about their calls. `sandboxes` opens those of
    its agents, elsewhere than here.
    """

    @known_keywords()
    def __init__(
        self,
        *,
        limits: RuntimeLimits | None = None,
        audit: AuditChoice = None,
        keep: Kept = "digest",
        interceptors: Sequence[Interceptor] = (),
        tools: Sequence[Tool | ToolFunction] = STANDARD,
        gate: MakeGate | None = None,
        sandboxes: Opener | None = None,
    ) -> None:
        self._limits = limits = limits or RuntimeLimits()
        trail = find_trail(audit)
        named = replace(trail, who=trail.who or current_user()).within(runtime=f"runtime_{secrets.token_hex(8)}")
        self._audit = RuntimeAudit(named if trail.is_on else trail, keep)
        self._types = MessageTypes(limits.message_bytes)
        self._registry = self._make_registry()
        self._subscriptions = self._make_subscriptions()
        self._pending = self._make_pending()
        self._dead_letters = DeadLetterRecorder(DeadLetters(limits.dead_letters, limits.dead_letter_bytes), self._audit)
        hooks = Interceptors(interceptors, self._types)
        self._dispatcher = Dispatcher(
            self._types,
            self._make_replies(),
            hooks,
            self._audit,
            self._dead_letters,
            self._make_context,
        )
        self._scheduler = Scheduler(limits, self._registry, self._dispatcher)
        self._router = Router(
            limits,
            self._types,
            self._registry,
            self._subscriptions,
            self._pending,
            hooks,
            self._audit,
            self._dead_letters,
            self._make_transport(),
        )
        self._parts = RuntimeParts(
            self._router,
            self._scheduler.slots,
            self._registry,
            self._subscriptions,
            self._audit,
            gate,
            sandboxes,
        )
        self._tools = as_tools(tools)
        self._phase = _Phase.NEW
        self._is_stopped = anyio.Event()
        self._group: TaskGroup | None = None

    @property
    def messages(self) -> MessageTypes:
        return self._types

    @property
    def dead_letters(self) -> DeadLetters:
        return self._dead_letters.letters

    # Start and stop

    async def __aenter__(self) -> Self:
        self._check_new()
        await self._audit.record(RuntimeStarted(os.getpid()))
        group = anyio.create_task_group()
        await group.__aenter__()
        try:
            if self._audit.is_on:
                group.start_soon(self._audit.run)
            await group.start(self._scheduler.run)
        except BaseException:
            group.cancel_scope.cancel()
            await group.__aexit__(None, None, None)
            raise
        self._group, self._phase = group, _Phase.RUNNING
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        group = self._group
        assert group is not None
        try:
            await self.stop(drain=error is None)
        finally:
            group.cancel_scope.cancel()
            if isinstance(error, anyio.get_cancelled_exc_class()):
                # The group itself may have cancelled it, and then raises what failed in it.
                await group.__aexit__(kind, error, traceback)
            else:
                await group.__aexit__(None, None, None)

    async def idle(self) -> None:
        await self._scheduler.wait_idle()

    @known_keywords()
    async def stop(self, *, drain: bool = True) -> None:
        if self._phase in (_Phase.NEW, _Phase.STOPPED):
            self._phase = _Phase.STOPPED
            return
        if self._phase is _Phase.STOPPING and drain:
            await self._is_stopped.wait()
            return
        self._phase = _Phase.STOPPING
        try:
            if drain:
                await self.idle()
        finally:
            with anyio.CancelScope(shield=True):
                await self._end()

    async def _end(self) -> None:
        if self._phase is _Phase.STOPPED:
            return
        self._phase = _Phase.STOPPED
        self._scheduler.cancel()
        self._pending.fail_all(ReplyFailure.of(StoppedError("the runtime was stopped before there was an answer")))
        await self._discard_queued()
        with anyio.CancelScope(deadline=anyio.current_time() + self._limits.stop_seconds, shield=True):
            for mailbox in self._registry.mailboxes():
                await self._end_agent(mailbox)
        with suppress(AuditError):
            await self._audit.record(RuntimeStopped())
        self._is_stopped.set()

    async def _discard_queued(self) -> None:
        for mailbox in self._registry.mailboxes():
            while (envelope := mailbox.take()) is not None:
                await self._dead_letters.record(
                    envelope, Reason.STOPPED, "the runtime was stopped before it was handled"
                )
                mailbox.refill()

    async def _end_agent(self, mailbox: Mailbox) -> None:
        self._registry.drop(mailbox)
        await self._subscriptions.remove_of(mailbox.id)
        agent = mailbox.agent
        if agent is None:
            return
        error: str | None = None
        try:
            await agent.on_stop()
        except Exception as raised:
            # Only the log can report it at this point.
            error = type(raised).__name__
        with suppress(AuditError):
            await self._audit.record(AgentStopped(error), agent=str(mailbox.id))

    async def retire(self, agent: AgentId | str) -> None:
        id = AgentId.parse(agent) if isinstance(agent, str) else agent
        mailbox = self._registry.find(id)
        if mailbox is None:
            return
        if not mailbox.is_idle:
            raise UsageError(f"{id} is handling a message; wait until it is idle")
        await self._end_agent(mailbox)

    # Agents

    @known_keywords()
    async def register(
        self,
        type: str,
        kind: type[RuntimeAgent] | Function | Sequence[Function],
        *,
        grants: Grants | None = None,
        make: Make | None = None,
        subscriptions: Sequence[str] = (),
        tools: Sequence[Tool | ToolFunction] = (),
        at_once: int = 1,
        reentrant: bool | None = None,
        redeliver: bool = False,
    ) -> None:
        check_type(type, "an agent's type")
        if at_once < 1:
            raise UsageError(f"at_once must be 1 or more; this is {at_once}")
        handlers, granted = handlers_of(kind), grants or Grants()
        made: builtins.type[RuntimeAgent] = RuntimeAgent
        if inspect.isclass(kind):
            made = kind
        wanted = [Pattern.parse(text) for text in (*made.subscriptions, *subscriptions)]
        for pattern in wanted:
            if not granted.may_subscribe(pattern):
                raise NotGrantedError(type, "subscribe to", str(pattern))
        for handler in handlers.values():
            for message in (*handler.takes, *handler.returns):
                self._types.add(message)
        takes = frozenset(map(self._types.name_of, handlers))
        registration = Registration(
            type=type,
            handlers=handlers,
            takes=takes,
            make=make or made.create,
            kind=made,
            tools=self._all_tools(tools),
            at_once=at_once,
            is_reentrant=made.reentrant if reentrant is None else reentrant,
            is_redelivered=redeliver,
            grants=granted,
        )
        self._registry.register(registration)
        try:
            await self._share(registration, wanted)
        except BaseException:
            self._registry.unregister(type)
            raise
        event = AgentRegistered(type, tuple(sorted(takes)), tuple(map(str, wanted)), granted.model_dump(mode="json"))
        await self._audit.record(event)
        for pattern in wanted:
            await self._subscriptions.add(Subscription(pattern, type))

    async def _share(self, registration: Registration, subscriptions: Sequence[Pattern]) -> None:
        """Announces a type to other processes; here there are none."""

    def _all_tools(self, tools: Sequence[Tool | ToolFunction]) -> tuple[Tool, ...]:
        together = (*self._tools, *as_tools(tools))
        if len({tool.name for tool in together}) != len(together):
            raise UsageError("two tools of this agent have the same name; give each its own")
        return together

    async def grant(self, agent: AgentId | str, grants: Grants) -> None:
        await self._audit.record(AgentGranted(str(agent), grants.model_dump(mode="json")))
        await self._registry.grant(agent, grants)

    # Messages

    @overload
    async def send(
        self, message: object, *, to: AgentId | str, sender: AgentId | None = None, deadline: Seconds | None = None
    ) -> object: ...

    @overload
    async def send(
        self,
        message: object,
        *,
        to: AgentId | str,
        sender: AgentId | None = None,
        deadline: Seconds | None = None,
        reply: type[T],
    ) -> T: ...

    @known_keywords()
    async def send(
        self,
        message: object,
        *,
        to: AgentId | str,
        sender: AgentId | None = None,
        deadline: Seconds | None = None,
        reply: type[object] = object,
    ) -> object:
        self._check_running()
        return await self._router.send(Origin(sender), message, to, deadline, reply)

    @known_keywords()
    async def publish(
        self,
        message: object,
        *,
        topic: TopicId | str,
        sender: AgentId | None = None,
        deadline: Seconds | None = None,
    ) -> None:
        self._check_running()
        await self._router.publish(Origin(sender), message, topic, deadline)

    def _check_new(self) -> None:
        if self._phase is not _Phase.NEW:
            raise UsageError(f"this runtime has been started already; make another {type(self).__name__}")

    def _check_running(self) -> None:
        if self._phase is _Phase.NEW:
            raise StoppedError("the runtime is not started; use it inside `async with LocalRuntime() as runtime:`")
        self._check_not_stopped(_Phase.STOPPING)

    def _check_not_stopped(self, *ends: _Phase) -> None:
        if self._phase in (_Phase.STOPPED, *ends):
            raise StoppedError("the runtime is stopped and accepts no more messages")

    # The parts that differ where agents are elsewhere

    def _make_registry(self) -> Registry:
        return Registry(self._limits, lambda work: self._scheduler.slots.submit(work))

    def _make_subscriptions(self) -> Subscriptions:
        return Subscriptions(self._limits.subscriptions)

    def _make_pending(self) -> PendingRequests:
        return PendingRequests()

    def _make_replies(self) -> Replies:
        return self._pending

    def _make_transport(self) -> Transport:
        return LocalTransport(self._scheduler, self._dispatcher, self._dead_letters, self._transfer)

    def _transfer(self, envelope: Envelope) -> Envelope:
        """In this process envelopes are passed as they are."""
        self._check_not_stopped()
        return envelope

    def _make_context(self, delivery: Delivery, is_start: bool) -> MessageContext:
        envelope, link = delivery.envelope, LocalLink(self._parts, delivery)
        sender, topic = (None, None) if is_start else (envelope.sender, envelope.topic)
        return MessageContext(delivery.mailbox.id, sender, topic, envelope.message_id, link)

    # State

    async def save_state(self) -> Mapping[str, object]:
        await self.idle()
        self._scheduler.slots.pause()
        try:
            states = {str(id): dict(state) for id, state in self._dispatcher.saved.items()}
            for mailbox in self._registry.mailboxes():
                if mailbox.agent is not None:
                    states[str(mailbox.id)] = as_json(mailbox.id, await mailbox.agent.save_state())
        finally:
            self._scheduler.slots.resume()
        return as_state(states)

    async def load_state(self, state: Mapping[str, object]) -> None:
        self._dispatcher.saved.update(read_states(state, self._registry))
