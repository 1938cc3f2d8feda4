"""An agent: a model that is given a task and tools, and the loop between them.

    ask the model -> its answer, filtered, on record -> its calls, together or in order, through the desk -> ask again

Between any two steps stand the budget, the clock and whoever cancels. What a model says changes nothing of what it may
do: tools, policy, targets of hand-offs and budget are fixed when the agent is made.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self

import anyio

from fumehood.agents import trail as records
from fumehood.agents.asking import Asking
from fumehood.agents.budget import Budget, Ledger, Usage
from fumehood.agents.calling import batches, call_together
from fumehood.agents.compaction import Compaction, OldestFirst
from fumehood.agents.events import Compacted, Text, Thought
from fumehood.agents.handing import HandOff, hand_off_tool
from fumehood.agents.memory import Memory, Shortened
from fumehood.agents.messages import AssistantMessage, CallRequest, Message, ToolMessage, UserMessage, unanswered
from fumehood.agents.models.interface import Failure, Model, ModelAnswer, ModelRequest, TextPiece, ThoughtPiece
from fumehood.agents.models.naming import find_model
from fumehood.agents.performing import Facts, Performer, Reply, Work
from fumehood.agents.premises import OWN, Premises, Room
from fumehood.agents.state import AgentState, read_state
from fumehood.agents.stopping import DONE, Stop, StopReason
from fumehood.agents.workplace import Desk, OutFolder, Workplace, trimmed
from fumehood.audit.events import Digest
from fumehood.audit.trail import Trail
from fumehood.errors import ApprovalPendingError, ModelError, UsageError
from fumehood.keywords import known_keywords
from fumehood.policy import AnyPolicy, Policy, read_policy
from fumehood.sandbox.opening import AuditChoice
from fumehood.sandbox.request import place_in_policy
from fumehood.sandbox.sandbox import AsyncSandbox
from fumehood.tools.approvals import Ask
from fumehood.tools.filters import Direction, FilterStream, Pipeline
from fumehood.tools.functions import Function, as_tools
from fumehood.tools.result import ToolResult, ToolStatus
from fumehood.tools.tool import Tool

if TYPE_CHECKING:
    from pydantic_ai.models import Model as TheirModel

_NEW_SANDBOX = "\n(The sandbox was opened anew since the calls before this one: their files are gone.)"
_NOT_MADE = "This call was not made: the task ended before."


class _SpentError(Exception):
    """The budget has no further request to the model in it."""

    def __init__(self, stop: StopReason) -> None:
        super().__init__(stop.detail)
        self.stop = stop


class AssistantAgent(Performer):
    """`AssistantAgent("coder", "openai:gpt-5", tools=[PYTHON], policy=policy)`; `await agent.run("...")`.

    `model` is one string (`fumehood.agents.models.naming`), a model of ours or one of pydantic-ai's. Without `tools` it
    only talks; with them, its calls are carried out in a sandbox under `policy`, which denies everything by default.
    `approvals` answers where the policy asks: a function, or an `Asking`. `hand_offs` are the names it may hand a task
    over to. With `session`, Python state lives on between calls. `out` is a folder that artifacts are copied to.
    `parallel_calls` is how many calls of one answer are carried out at the same time, and `compaction` what the model
    reads of a conversation that becomes too long.

    The conversation goes on from task to task; the sandbox does so inside of `async with agent:`, else each task has
    its own.
    """

    @known_keywords(elsewhere=place_in_policy)
    def __init__(
        self,
        name: str,
        model: str | Model | TheirModel,
        *,
        tools: Sequence[Tool | Function] = (),
        policy: AnyPolicy | None = None,
        instructions: str = "",
        filters: Pipeline | None = None,
        approvals: Ask | Asking | None = None,
        budget: Budget | None = None,
        hand_offs: Sequence[str] = (),
        description: str = "",
        session: bool = False,
        out: str | os.PathLike[str] | None = None,
        audit: AuditChoice = None,
        parallel_calls: int = 8,
        compaction: Compaction | None = None,
    ) -> None:
        super().__init__(name, description or instructions, budget, audit)
        self._model = as_model(model)
        self._instructions = instructions
        given = (*as_tools(tools), *([hand_off_tool(hand_offs)] if hand_offs else ()))
        if len({tool.name for tool in given}) != len(given):
            raise UsageError(f"two tools of {name} have the same name; give each its own")
        if parallel_calls < 1:
            raise UsageError(f"parallel_calls must be 1 or more; this is {parallel_calls!r}")
        asking = approvals if isinstance(approvals, Asking) else Asking(approvals)
        self.hand_offs = tuple(hand_offs)
        self._place = Workplace(
            read_policy(policy) or Policy(),
            given,
            asking,
            filters,
            session,
            None if out is None else OutFolder(out),
            parallel_calls,
        )
        self._memory = Memory(compaction or OldestFirst())
        self._approval: str | None = None
        self._room: Room | None = None
        self._premises: Premises | None = None
        self._has_lost_files = False
        self._held = AsyncExitStack()

    @property
    def messages(self) -> tuple[Message, ...]:
        """Everything that was said, in all tasks."""
        return tuple(self._memory.all)

    @property
    def policy(self) -> Policy:
        return self._place.policy

    @property
    def sandbox(self) -> AsyncSandbox | None:
        """While a task is under way, or inside of `async with agent:`; None without tools."""
        return self._room.sandbox if self._room else None

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.at_work(OWN.trail(self._audit), OWN))
            self._held = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._held.aclose()

    def state(self) -> AgentState:
        return AgentState(name=self.name, messages=tuple(self._memory.all), approval=self._approval, task=self._paused)

    def load_state(self, data: Mapping[str, object]) -> None:
        self._refuse_while_busy("load a state before its task begins")
        state = read_state(AgentState, self.name, data)
        self._memory.load(state.messages)
        self._approval, self._paused = state.approval, state.task

    def facts(self) -> Facts:
        names = tuple(tool.name for tool in self._place.tools)
        return Facts(self._model.name, names, self._place.policy.digest if names else None)

    @asynccontextmanager
    async def at_work(self, trail: Trail, premises: Premises) -> AsyncIterator[None]:
        if self._premises is premises:
            yield
            return
        if self._premises is not None:
            raise UsageError(f"{self.name} works elsewhere already; leave `async with {self.name}` before")
        opening = self._place.opened(records.of_agent(trail, self.name), premises)
        async with self._model.connected(), opening as self._room:
            self._premises, self._has_lost_files = premises, any(map(_was_carried_out, self._memory.all))
            try:
                yield
            finally:
                self._premises = self._room = None

    async def forget_pause(self, trail: Trail) -> None:
        if self._approval is not None:
            await self._place.withdraw(self._approval, records.of_agent(trail, self.name))
            self._approval = None

    async def reply(self, news: Sequence[UserMessage], work: Work) -> Reply:
        desk = self._place.desk(self._room, self.name, work)
        ledger = Ledger(self._budget, parent=work.ledger)
        if self._approval is not None:
            desk.expect(self._approval)
            self._approval = None
        if news:
            self._drop_unanswered(work)
            self._memory.begin_task()
        for message in news:
            filtered = await desk.filters.apply(message.text, Direction.TO_MODEL)
            self._remember(message.model_copy(update={"text": filtered.text}), work)
        stop = StopReason(Stop.BUDGET, "its time is over", limit="seconds")
        with anyio.move_on_after(ledger.seconds_left()):
            stop = await self._loop(desk, ledger, work)
        await desk.deliver()
        last = self._memory.all[-1] if self._memory.all else None
        said = last.text if isinstance(last, AssistantMessage) else ""
        return Reply(said, stop)

    async def _loop(self, desk: Desk, ledger: Ledger, work: Work) -> StopReason:
        while True:
            for batch in batches(unanswered(self._memory.all), desk.is_parallel):
                if (stop := await self._call(batch, desk, ledger, work)) is not None:
                    return stop
            try:
                answer = await self._ask_shortened(desk, ledger, work)
            except ModelError as error:
                return await self._failed(error, work)
            except _SpentError as error:
                return error.stop
            await self._take(answer, desk, work)
            if not answer.calls:
                return DONE
            if spent := ledger.spent():
                return StopReason(Stop.BUDGET, spent[1], limit=spent[0])

    async def _ask_shortened(self, desk: Desk, ledger: Ledger, work: Work) -> ModelAnswer:
        """Compacted first if it is too long by our count, and once more if it is by the model's."""

        async def ask(text: str) -> str:
            answer = await self._answer_to(ModelRequest("", (UserMessage(text=text),)), ledger)
            return (await desk.filters.apply(answer.text, Direction.FROM_MODEL)).text

        _refuse_spent(ledger)
        await self._tell_compacted(await self._memory.compact(ask), "limit", work)
        try:
            return await self._ask(desk, ledger, work)
        except ModelError as error:
            if error.kind != Failure.CONTEXT_OVERFLOW:
                raise
            shortened = await self._memory.compact(ask, is_overflow=True)
            if shortened is None:
                raise
        await self._tell_compacted(shortened, "overflow", work)
        return await self._ask(desk, ledger, work)

    async def _tell_compacted(self, shortened: Shortened | None, why: str, work: Work) -> None:
        if shortened is not None:
            await work.trail_of(self.name).write(records.ConversationCompacted(self._model.name, why, *shortened))
            work.emit(Compacted(self.name, why, *shortened))

    async def _ask(self, desk: Desk, ledger: Ledger, work: Work) -> ModelAnswer:
        """What is shown on the way is filtered as it comes; the answer itself is, as a whole, by `_take`."""
        request = ModelRequest(self._instructions, tuple(self._memory.shown), desk.schemas())
        shown = {TextPiece: (FilterStream(desk.filters), Text), ThoughtPiece: (FilterStream(desk.filters), Thought)}

        def show(piece: TextPiece | ThoughtPiece) -> None:
            stream, kind = shown[type(piece)]
            for part in stream.feed(piece.text):
                work.emit(kind(self.name, part.text))

        answer = await self._answer_to(request, ledger, show)
        for stream, kind in shown.values():
            for part in stream.finish():
                work.emit(kind(self.name, part.text))
        return answer

    async def _answer_to(
        self, request: ModelRequest, ledger: Ledger, show: Callable[[TextPiece | ThoughtPiece], None] = lambda _: None
    ) -> ModelAnswer:
        """Every request to the model is made here, and counts against the budget, also one that fails."""
        _refuse_spent(ledger)
        try:
            answer = await self._respond(request, show)
        except ModelError:
            ledger.add(Usage(turns=1))
            raise
        ledger.add(used_by(answer))
        return answer

    async def _respond(self, request: ModelRequest, show: Callable[[TextPiece | ThoughtPiece], None]) -> ModelAnswer:
        answer: ModelAnswer | None = None
        async with aclosing(self._model.respond(request)) as events:
            async for event in events:
                if isinstance(event, ModelAnswer):
                    answer = event
                else:
                    show(event)
        if answer is None:
            raise ModelError(Failure.TRUNCATED, f"the answer of the model {self._model.name} has no end")
        return answer

    async def _take(self, answer: ModelAnswer, desk: Desk, work: Work) -> None:
        text = (await desk.filters.apply(answer.text, Direction.FROM_MODEL)).text
        thought = (await desk.filters.apply(answer.thought, Direction.FROM_MODEL)).text
        calls = self._own_calls(answer.calls)
        is_unchanged = (text, thought, calls) == (answer.text, answer.thought, answer.calls)
        native = answer.native if is_unchanged else None
        message = AssistantMessage(source=self.name, text=text, thought=thought, calls=calls, native=native)
        told = records.ModelAnswered(
            self._model.name,
            Digest.of(text.encode("utf-8", "surrogatepass")),
            tuple(call.tool[:100].encode("utf-8", "backslashreplace").decode() for call in calls[:100]),
            answer.input_tokens,
            answer.output_tokens,
        )
        await work.trail_of(self.name).write(told)
        self._remember(message, work)

    def _own_calls(self, calls: Sequence[CallRequest]) -> tuple[CallRequest, ...]:
        """Under ids that are new in this conversation: a result must belong to one call and no other."""
        seen = {
            call.call_id
            for message in self._memory.all
            if isinstance(message, AssistantMessage)
            for call in message.calls
        }
        found: list[CallRequest] = []
        for number, each in enumerate(calls):
            unused = each.call_id and each.call_id not in seen
            name = each.call_id if unused else f"call_{len(self._memory.all)}_{number}"
            seen.add(name)
            found.append(trimmed(each.model_copy(update={"call_id": name})))
        return tuple(found)

    async def _call(self, batch: Sequence[CallRequest], desk: Desk, ledger: Ledger, work: Work) -> StopReason | None:
        """What ends the task with these calls, if anything does. Each of them is counted before any begins."""
        stop: StopReason | None = None
        begun: list[CallRequest] = []
        for request in batch:
            if spent := ledger.spent(next_call=True):
                stop = StopReason(Stop.BUDGET, spent[1], limit=spent[0])
                break
            ledger.add(Usage(tool_calls=1))
            begun.append(request)
        try:
            handed = await self._carry_out(begun, desk, work)
        except ApprovalPendingError as error:
            ledger.add(Usage(tool_calls=-1))  # it is asked for once more after the pause
            self._approval = error.request
            return StopReason(Stop.APPROVAL_PENDING, str(error), approval=error.request)
        if handed is not None:
            self._drop_unanswered(work)
            return StopReason(Stop.HANDED_OFF, handed.text, target=handed.target)
        return stop

    async def _carry_out(self, requests: Sequence[CallRequest], desk: Desk, work: Work) -> HandOff | None:
        handed: HandOff | None = None

        def keep(request: CallRequest, result: ToolResult) -> None:
            nonlocal handed
            text = result.text
            if result.run is not None and self._has_lost_files:
                text, self._has_lost_files = text + _NEW_SANDBOX, False
            self._remember(self._result(request, result.status, text), work)
            handed = result.value if isinstance(result.value, HandOff) else handed

        await call_together(requests, desk.call, keep, desk.parallel_calls)
        return handed

    async def _failed(self, error: ModelError, work: Work) -> StopReason:
        await work.trail_of(self.name).write(records.ModelFailed(self._model.name, error.kind, str(error)))
        return StopReason.of(error)

    def _drop_unanswered(self, work: Work) -> None:
        """Calls of a task that ended before they were made: a model's interface wants a result for each."""
        for request in unanswered(self._memory.all):
            self._remember(self._result(request, ToolStatus.ERROR, _NOT_MADE), work)

    def _result(self, request: CallRequest, status: ToolStatus, text: str) -> ToolMessage:
        return ToolMessage(source=self.name, call_id=request.call_id, tool=request.tool, status=status, text=text)

    def _remember(self, message: Message, work: Work) -> None:
        self._memory.add(message)
        work.messages.append(message)


def as_model(model: str | Model | TheirModel) -> Model:
    if isinstance(model, str):
        return find_model(model)
    if hasattr(model, "respond"):
        return model  # pyright: ignore[reportReturnType]  # what has this is one of ours
    from fumehood.agents.models.remote import RemoteModel

    return RemoteModel(model)  # pyright: ignore[reportArgumentType]


def _refuse_spent(ledger: Ledger) -> None:
    if spent := ledger.spent(next_turn=True):
        raise _SpentError(StopReason(Stop.BUDGET, spent[1], limit=spent[0]))


def _was_carried_out(message: Message) -> bool:
    return isinstance(message, ToolMessage) and message.status in (ToolStatus.SUCCESS, ToolStatus.ERROR)


def used_by(answer: ModelAnswer) -> Usage:
    return Usage(
        turns=1,
        input_tokens=answer.input_tokens,
        output_tokens=answer.output_tokens,
        cost=answer.cost or 0.0,
        unmeasured=0 if answer.is_measured else 1,
        unpriced=1 if answer.cost is None else 0,
    )
