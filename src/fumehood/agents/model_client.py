"""Requests of an agent to its model: counted against the budget, compacted when too long, filtered as they come."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass

from fumehood.agents import audit_records as records
from fumehood.agents.budget import Usage, UsageMeter
from fumehood.agents.events import Compacted, TextDelta, ThoughtDelta
from fumehood.agents.memory import Memory, Shortened
from fumehood.agents.messages import UserMessage
from fumehood.agents.models.interface import Model, ModelAnswer, ModelFailure, ModelRequest, TextPiece, ThoughtPiece
from fumehood.agents.result import Stop, StopReason
from fumehood.agents.task import TaskContext
from fumehood.errors import ModelError
from fumehood.tools.filters import Direction, FilterStream, Pipeline
from fumehood.tools.tool import ToolSchema

Show = Callable[[TextPiece | ThoughtPiece], None]


class BudgetSpentError(Exception):
    """The budget does not allow another request to the model."""

    def __init__(self, stop: StopReason) -> None:
        super().__init__(stop.detail)
        self.stop = stop


async def ask_model(model: Model, request: ModelRequest, meter: UsageMeter, show: Show = lambda _: None) -> ModelAnswer:
    """Every request to a model is made here, and counts against the budget, also one that fails."""
    _refuse_spent(meter)
    try:
        answer = await _respond(model, request, show)
    except ModelError:
        meter.add(Usage(turns=1))
        raise
    meter.add(_usage_of(answer))
    return answer


def _refuse_spent(meter: UsageMeter) -> None:
    if spent := meter.spent(next_turn=True):
        raise BudgetSpentError(StopReason(Stop.BUDGET, spent[1], limit=spent[0]))


async def _respond(model: Model, request: ModelRequest, show: Show) -> ModelAnswer:
    answer: ModelAnswer | None = None
    async with aclosing(model.respond(request)) as events:
        async for event in events:
            if isinstance(event, ModelAnswer):
                answer = event
            else:
                show(event)
    if answer is None:
        raise ModelError(ModelFailure.TRUNCATED, f"the answer of the model {model.name} has no end")
    return answer


def _usage_of(answer: ModelAnswer) -> Usage:
    return Usage(
        turns=1,
        input_tokens=answer.input_tokens,
        output_tokens=answer.output_tokens,
        cost=answer.cost or 0.0,
        unmeasured=0 if answer.is_measured else 1,
        unpriced=1 if answer.cost is None else 0,
    )


@dataclass(frozen=True, slots=True)
class ModelClient:
    """The model of one agent in one turn."""

    agent: str
    model: Model
    instructions: str
    memory: Memory
    filters: Pipeline
    meter: UsageMeter
    task: TaskContext

    async def ask(self, tools: tuple[ToolSchema, ...], output_tool: ToolSchema | None) -> ModelAnswer:
        """The conversation is compacted first if it is too long by our count, and once more if it is by the model's."""
        _refuse_spent(self.meter)
        await self.task.trail.flush()
        await self._compact("limit")
        try:
            return await self._ask(tools, output_tool)
        except ModelError as error:
            is_overflow = error.kind == ModelFailure.CONTEXT_OVERFLOW
            if not is_overflow or not await self._compact("overflow"):
                raise
        return await self._ask(tools, output_tool)

    async def _compact(self, why: str) -> bool:
        """Whether the model reads less of the conversation from here on."""
        shortened = await self.memory.compact(self._ask_apart, is_overflow=why == "overflow")
        if shortened is None:
            return False
        await self._record(shortened, why)
        return True

    async def _ask_apart(self, text: str) -> str:
        answer = await ask_model(self.model, ModelRequest("", (UserMessage(text=text),)), self.meter)
        return (await self.filters.apply(answer.text, Direction.FROM_MODEL)).text

    async def _record(self, shortened: Shortened, why: str) -> None:
        trail = self.task.trail_of(self.agent)
        await trail.write(records.ConversationCompacted(self.model.name, why, *shortened))
        self.task.emit(Compacted(self.agent, why, *shortened))

    async def _ask(self, tools: tuple[ToolSchema, ...], output_tool: ToolSchema | None) -> ModelAnswer:
        """Pieces are filtered as they are shown; the answer itself is filtered as a whole by the turn."""
        request = ModelRequest(self.instructions, tuple(self.memory.shown), tools, output_tool)
        texts, thoughts = FilterStream(self.filters), FilterStream(self.filters)
        shown = {TextPiece: (texts, TextDelta), ThoughtPiece: (thoughts, ThoughtDelta)}

        def show(piece: TextPiece | ThoughtPiece) -> None:
            stream, kind = shown[type(piece)]
            for part in stream.feed(piece.text):
                self.task.emit(kind(self.agent, part.text))

        answer = await ask_model(self.model, request, self.meter, show)
        for stream, kind in shown.values():
            for part in stream.finish():
                self.task.emit(kind(self.agent, part.text))
        return answer
