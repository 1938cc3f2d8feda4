"""The runtime in this process, on asyncio or trio.

    outgoing   judged, written, intercepted, recorded, posted
    incoming   queued, given a turn and a task
    handling   handled, recorded, answered
    census     who there is, and what each is granted

This module puts them together and owns the beginning and the end.
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
from fumehood.runtime.agent import Function, RuntimeAgent, handlers_of
from fumehood.runtime.census import Census
from fumehood.runtime.chronicle import Chronicle
from fumehood.runtime.context import Context
from fumehood.runtime.deadletters import DeadLetters, Reason
from fumehood.runtime.enquiries import Enquiries
from fumehood.runtime.envelopes import Answer, Envelope, Failure
from fumehood.runtime.events import AgentGranted, AgentRegistered, AgentStopped, RuntimeStarted, RuntimeStopped
from fumehood.runtime.grants import Grants
from fumehood.runtime.handling import Handling
from fumehood.runtime.identity import AgentId, TopicId, check_type
from fumehood.runtime.incoming import Incoming
from fumehood.runtime.interception import Interceptor, Interceptors
from fumehood.runtime.interface import Runtime
from fumehood.runtime.limits import Limits
from fumehood.runtime.lines import AgentLine, Exchange
from fumehood.runtime.losses import Losses
from fumehood.runtime.messages import Catalogue
from fumehood.runtime.outgoing import Origin, Outgoing, Post
from fumehood.runtime.patterns import Pattern
from fumehood.runtime.residents import Job, Make, Registration, Resident
from fumehood.runtime.states import as_json, read_states, written
from fumehood.runtime.subscriptions import Subscription, Subscriptions
from fumehood.runtime.toolboxes import MakeGate
from fumehood.sandbox.opening import AuditChoice, find_trail
from fumehood.tools import STANDARD, Tool, as_tools
from fumehood.tools import Function as ToolFunction

T = TypeVar("T")


class _Phase(Enum):
    NEW = auto()
    RUNNING = auto()
    STOPPING = auto()
    STOPPED = auto()


class LocalRuntime(Runtime):
    """`async with LocalRuntime() as runtime`: leaving the block lets what is under way end; an error cancels it.

    `audit` chooses the log as it does for a sandbox; `keep` says what becomes of the messages' content in it. `tools`
    are what can be granted, and `gate` makes who is asked about their calls.
    """

    @known_keywords()
    def __init__(
        self,
        *,
        limits: Limits | None = None,
        audit: AuditChoice = None,
        keep: Kept = "digest",
        interceptors: Sequence[Interceptor] = (),
        tools: Sequence[Tool | ToolFunction] = STANDARD,
        gate: MakeGate | None = None,
    ) -> None:
        self._limits = limits = limits or Limits()
        trail = find_trail(audit)
        named = replace(trail, who=trail.who or current_user()).within(runtime=f"runtime_{secrets.token_hex(8)}")
        self._chronicle = Chronicle(named if trail.is_on else trail, keep)
        self._catalogue = Catalogue(limits.message_bytes)
        self._census = Census(limits, lambda work: self._incoming.slots.ask(work))
        self._subscriptions = Subscriptions(limits.subscriptions)
        self._enquiries = Enquiries()
        self._losses = Losses(DeadLetters(limits.dead_letters, limits.dead_letter_bytes), self._chronicle)
        hooks = Interceptors(interceptors, self._catalogue)
        self._handling = Handling(
            self._catalogue,
            self._enquiries,
            hooks,
            self._chronicle,
            self._losses,
            self._make_context,
            self._carry_answer,
        )
        self._incoming = Incoming(limits, self._census, self._handling)
        self._outgoing = Outgoing(
            limits,
            self._catalogue,
            self._census,
            self._subscriptions,
            self._enquiries,
            hooks,
            self._chronicle,
            self._losses,
            Post(self._deliver, self._offer, self._handling.abandon),
        )
        self._exchange = Exchange(
            self._outgoing,
            self._incoming.slots,
            self._census,
            self._subscriptions,
            self._chronicle,
            gate,
        )
        self._tools = as_tools(tools)
        self._phase = _Phase.NEW
        self._is_stopped = anyio.Event()
        self._group: TaskGroup | None = None

    @property
    def messages(self) -> Catalogue:
        return self._catalogue

    @property
    def dead_letters(self) -> DeadLetters:
        return self._losses.letters

    # Beginning and end

    async def __aenter__(self) -> Self:
        if self._phase is not _Phase.NEW:
            raise UsageError("this runtime has been started already; make another LocalRuntime")
        await self._chronicle.tell(RuntimeStarted(os.getpid()))
        group = anyio.create_task_group()
        await group.__aenter__()
        try:
            if self._chronicle.is_on:
                group.start_soon(self._chronicle.run)
            await group.start(self._incoming.run)
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
                # It may be the group's own doing, and then tells what went wrong in it.
                await group.__aexit__(kind, error, traceback)
            else:
                await group.__aexit__(None, None, None)

    async def idle(self) -> None:
        await self._incoming.wait_idle()

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
        self._incoming.cancel()
        self._enquiries.fail_all(Failure.of(StoppedError("the runtime was stopped before there was an answer")))
        await self._bury_what_waits()
        with anyio.CancelScope(deadline=anyio.current_time() + self._limits.stop_seconds, shield=True):
            for resident in self._census.residents():
                await self._end_agent(resident)
        with suppress(AuditError):
            await self._chronicle.tell(RuntimeStopped())
        self._is_stopped.set()

    async def _bury_what_waits(self) -> None:
        for resident in self._census.residents():
            while (envelope := resident.take()) is not None:
                await self._losses.lose(envelope, Reason.STOPPED, "the runtime was stopped before it was handled")
                resident.refill()

    async def _end_agent(self, resident: Resident) -> None:
        self._census.drop(resident)
        self._subscriptions.remove_of(resident.id)
        agent = resident.agent
        if agent is None:
            return
        error: str | None = None
        try:
            await agent.on_stop()
        except Exception as raised:
            # There is nobody left to tell but the log.
            error = type(raised).__name__
        with suppress(AuditError):
            await self._chronicle.tell(AgentStopped(error), agent=str(resident.id))

    async def retire(self, agent: AgentId | str) -> None:
        id = AgentId.parse(agent) if isinstance(agent, str) else agent
        resident = self._census.find(id)
        if resident is None:
            return
        if not resident.is_idle:
            raise UsageError(f"{id} is at work; wait until it is idle")
        await self._end_agent(resident)

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
                self._catalogue.add(message)
        takes = frozenset(map(self._catalogue.name_of, handlers))
        registration = Registration(
            type=type,
            handlers=handlers,
            takes=takes,
            make=make or made.create,
            kind=made,
            tools=self._with_common(tools),
            at_once=at_once,
            is_reentrant=made.reentrant if reentrant is None else reentrant,
            grants=granted,
        )
        self._census.register(registration)
        event = AgentRegistered(type, tuple(sorted(takes)), tuple(map(str, wanted)), granted.model_dump(mode="json"))
        await self._chronicle.tell(event)
        for pattern in wanted:
            self._subscriptions.add(Subscription(pattern, type))

    def _with_common(self, tools: Sequence[Tool | ToolFunction]) -> tuple[Tool, ...]:
        together = (*self._tools, *as_tools(tools))
        if len({tool.name for tool in together}) != len(together):
            raise UsageError("two tools of this agent have the same name; give each its own")
        return together

    async def grant(self, agent: AgentId | str, grants: Grants) -> None:
        await self._chronicle.tell(AgentGranted(str(agent), grants.model_dump(mode="json")))
        self._census.grant(agent, grants)

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
        return await self._outgoing.ask(Origin(sender), message, to, deadline, reply)

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
        await self._outgoing.publish(Origin(sender), message, topic, deadline)

    def _check_running(self) -> None:
        if self._phase is _Phase.NEW:
            raise StoppedError("the runtime has not begun; use it inside `async with LocalRuntime() as runtime:`")
        self._check_not_stopped(_Phase.STOPPING)

    def _check_not_stopped(self, *ends: _Phase) -> None:
        if self._phase in (_Phase.STOPPED, *ends):
            raise StoppedError("the runtime is stopped, and takes no more messages")

    # The seam: in this process an envelope is handed over as it is.

    def _carry(self, envelope: Envelope) -> Envelope:
        return envelope

    def _carry_answer(self, answer: Answer) -> Answer:
        return answer

    async def _deliver(self, envelope: Envelope, sender: Job | None) -> None:
        self._check_not_stopped()
        await self._incoming.deliver(self._carry(envelope), sender)

    def _offer(self, envelope: Envelope, sender: Job | None) -> bool:
        self._check_not_stopped()
        return self._incoming.offer(self._carry(envelope), sender)

    def _make_context(self, job: Job, is_start: bool) -> Context:
        envelope, line = job.envelope, AgentLine(self._exchange, job)
        sender, topic = (None, None) if is_start else (envelope.sender, envelope.topic)
        return Context(job.resident.id, sender, topic, envelope.message_id, line)

    # State

    async def save_state(self) -> Mapping[str, object]:
        await self.idle()
        self._incoming.slots.hold()
        try:
            states = {str(id): dict(state) for id, state in self._handling.saved.items()}
            for resident in self._census.residents():
                if resident.agent is not None:
                    states[str(resident.id)] = as_json(resident.id, await resident.agent.save_state())
        finally:
            self._incoming.slots.go_on()
        return written(states)

    async def load_state(self, state: Mapping[str, object]) -> None:
        self._handling.saved.update(read_states(state, self._census))
