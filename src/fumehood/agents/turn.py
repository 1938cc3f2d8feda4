"""One turn of an agent: the loop between its model and its tools.

    ask the model -> its answer, filtered and recorded -> its calls, together or in order -> ask again

Between any two steps stand the budget, the clock and cancellation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic

from fumehood.agents import audit_records as records
from fumehood.agents.budget import Usage, UsageMeter
from fumehood.agents.events import CallMade, CallReturned
from fumehood.agents.handoff import Handoff
from fumehood.agents.memory import Memory
from fumehood.agents.messages import (
    NOTE,
    AssistantMessage,
    CallRequest,
    ChatMessage,
    ToolMessage,
    UserMessage,
    unanswered,
)
from fumehood.agents.model_client import BudgetSpentError, ModelClient
from fumehood.agents.models.interface import ModelAnswer
from fumehood.agents.output import OUTPUT_TOOL, TEXT_REJECTED, InvalidOutputError, OutputSchema, filter_arguments
from fumehood.agents.result import DONE, OutputKind, OutputT, Stop, StopReason
from fumehood.agents.task import TaskContext, TurnResult
from fumehood.agents.tool_runner import ToolRunner, batches, call_together
from fumehood.audit.events import Attachment, as_content
from fumehood.errors import ApprovalPendingError, ModelError
from fumehood.tools.calls import ToolRefused
from fumehood.tools.filters import Direction
from fumehood.tools.result import ToolResult, ToolStatus

_NEW_SANDBOX = "\n(The sandbox was opened anew since the calls before this one: their files are gone.)"
_NOT_MADE = "This call was not made: the task ended before."
_TAKEN = "The answer was taken."
# No call that makes sense is longer; of one that does not, not everything is kept.
_MOST_ARGUMENTS = 1_000_000
_KEPT_ARGUMENTS = 1_000
_MOST_TOLD = 200


class AgentTurn(Generic[OutputT]):
    """`approval` is the id of the request that the turn waits for, after it was paused."""

    def __init__(
        self,
        agent: str,
        client: ModelClient,
        tools: ToolRunner,
        meter: UsageMeter,
        task: TaskContext,
        output: OutputSchema[OutputT] | None,
    ) -> None:
        self._agent, self._client, self._tools, self._meter, self._task = agent, client, tools, meter, task
        self._memory: Memory = client.memory
        self._schema = output
        self._output: OutputT | OutputKind = OutputKind.TEXT if output is None else OutputKind.NONE
        self._output_text = ""
        self.approval: str | None = None

    async def begin(self, news: Sequence[UserMessage]) -> None:
        self._drop_unanswered()
        self._memory.begin_task()
        for message in news:
            text = await self._filtered(message.text, Direction.TO_MODEL)
            await self._record_news(text)
            self._remember(message.model_copy(update={"text": text}))

    async def _record_news(self, text: str) -> None:
        """Where messages are kept; a digest of the task is in its first record anyway."""
        if self._tools.kept_messages == "full":
            trail = self._task.trail_of(self._agent)
            await trail.defer(records.MessageReceived(Attachment(_as_bytes(text))))

    def result(self, stop: StopReason) -> TurnResult[OutputT]:
        last = self._memory.all[-1] if self._memory.all else None
        said = last.text if isinstance(last, AssistantMessage) else ""
        return TurnResult(self._output_text or said, stop, self._output)

    async def run(self) -> StopReason:
        while True:
            for batch in batches(unanswered(self._memory.all), self._is_parallel):
                stop = await (self._take_output(batch[0]) if self._is_output(batch[0]) else self._call(batch))
                if stop is not None:
                    return stop
            try:
                answer = await self._client.ask(self._tools.schemas(), self._schema and self._schema.tool)
            except ModelError as error:
                return await self._failed(error)
            except BudgetSpentError as error:
                return error.stop
            await self._take(answer)
            if not answer.calls and (stop := self._take_text()) is not None:
                return stop
            if not all(map(self._is_output, answer.calls)) and (spent := self._meter.spent()):
                return StopReason(Stop.BUDGET, spent[1], limit=spent[0])

    async def _take(self, answer: ModelAnswer) -> None:
        text = await self._filtered(answer.text, Direction.FROM_MODEL)
        thought = await self._filtered(answer.thought, Direction.FROM_MODEL)
        calls = tuple([await self._filtered_output(call) for call in self._own_calls(answer.calls)])
        is_unchanged = (text, thought, calls) == (answer.text, answer.thought, answer.calls)
        native = answer.native if is_unchanged else None
        message = AssistantMessage(source=self._agent, text=text, thought=thought, calls=calls, native=native)
        event = records.ModelAnswered(
            self._client.model.name,
            as_content(_as_bytes(text), self._tools.kept_messages),
            tuple(call.tool[:100].encode("utf-8", "backslashreplace").decode() for call in calls[:100]),
            answer.input_tokens,
            answer.output_tokens,
            None if answer.cost is None else records.microdollars(answer.cost),
        )
        # Nothing comes of it before its calls, or the end of the task, are recorded too.
        trail = self._task.trail_of(self._agent)
        await (trail.defer(event) if self._tools.records_to(trail.log) else trail.write(event))
        self._remember(message)

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
            found.append(_trimmed(each.model_copy(update={"call_id": name})))
        return tuple(found)

    async def _filtered_output(self, call: CallRequest) -> CallRequest:
        """An answer is filtered as a text is, since it leaves the agent; other calls are judged by the toolbox."""
        if not self._is_output(call):
            return call
        cleaned = await filter_arguments(call.arguments, lambda text: self._filtered(text, Direction.FROM_MODEL))
        return call.model_copy(update={"arguments": cleaned})

    async def _filtered(self, text: str, direction: Direction) -> str:
        return (await self._tools.filters.apply(text, direction)).text if text else ""

    def _is_output(self, request: CallRequest) -> bool:
        return self._schema is not None and request.tool == OUTPUT_TOOL

    def _is_parallel(self, request: CallRequest) -> bool:
        return not self._is_output(request) and self._tools.is_parallel(request)

    def _take_text(self) -> StopReason | None:
        """A text ends the turn of an agent whose answers are texts; another one is asked for its answer once more."""
        if self._schema is None:
            return DONE
        self._remember(UserMessage(source=NOTE, text=TEXT_REJECTED))
        return self._rejected(self._schema, TEXT_REJECTED)

    async def _take_output(self, request: CallRequest) -> StopReason | None:
        assert self._schema is not None
        self._task.emit(CallMade(self._agent, request.call_id, request.tool, request.arguments))
        try:
            self._output = self._schema.read(request.arguments)
        except InvalidOutputError as error:
            problem = str(error)
            await self._task.trail_of(self._agent).write(ToolRefused(OUTPUT_TOOL, _told(problem)))
            self._answer_call(request, ToolStatus.INVALID, problem)
            return self._rejected(self._schema, problem)
        self._output_text = request.arguments
        self._answer_call(request, ToolStatus.SUCCESS, _TAKEN)
        self._drop_unanswered()
        return DONE

    def _answer_call(self, request: CallRequest, status: ToolStatus, text: str) -> None:
        self._task.emit(CallReturned(self._agent, request.call_id, request.tool, status, text))
        self._remember(self._result(request, status, text))

    def _rejected(self, schema: OutputSchema[OutputT], problem: str) -> StopReason | None:
        if schema.attempts(self._memory.all) <= schema.retries:
            return None
        return StopReason(Stop.INVALID_OUTPUT, problem)

    async def _call(self, batch: Sequence[CallRequest]) -> StopReason | None:
        """What ends the turn with these calls, if anything does. Each of them is counted before any begins."""
        stop: StopReason | None = None
        begun: list[CallRequest] = []
        for request in batch:
            if spent := self._meter.spent(next_call=True):
                stop = StopReason(Stop.BUDGET, spent[1], limit=spent[0])
                break
            self._meter.add(Usage(tool_calls=1))
            begun.append(request)
        try:
            handed = await self._carry_out(begun)
        except ApprovalPendingError as error:
            self._meter.add(Usage(tool_calls=-1))  # it is asked for once more after the pause
            self.approval = error.request
            return StopReason(Stop.APPROVAL_PENDING, str(error), approval=error.request)
        if handed is not None:
            self._drop_unanswered()
            return StopReason(Stop.HANDED_OFF, handed.text, target=handed.target)
        return stop

    async def _carry_out(self, requests: Sequence[CallRequest]) -> Handoff | None:
        handed: Handoff | None = None

        def keep(request: CallRequest, result: ToolResult) -> None:
            nonlocal handed
            text = result.text
            if result.run is not None and self._memory.has_lost_files:
                text, self._memory.has_lost_files = text + _NEW_SANDBOX, False
            self._remember(self._result(request, result.status, text))
            handed = result.value if isinstance(result.value, Handoff) else handed

        await call_together(requests, self._tools.call, keep, self._tools.parallel_calls)
        return handed

    async def _failed(self, error: ModelError) -> StopReason:
        event = records.ModelFailed(self._client.model.name, error.kind, str(error))
        await self._task.trail_of(self._agent).write(event)
        return StopReason.of(error)

    def _drop_unanswered(self) -> None:
        """Calls of a task that ended before they were made: a model's interface wants a result for each."""
        for request in unanswered(self._memory.all):
            self._remember(self._result(request, ToolStatus.ERROR, _NOT_MADE))

    def _result(self, request: CallRequest, status: ToolStatus, text: str) -> ToolMessage:
        return ToolMessage(source=self._agent, call_id=request.call_id, tool=request.tool, status=status, text=text)

    def _remember(self, message: ChatMessage) -> None:
        self._memory.add(message)
        self._task.messages.append(message)


def _trimmed(request: CallRequest) -> CallRequest:
    if len(request.arguments) <= _MOST_ARGUMENTS:
        return request
    return request.model_copy(update={"arguments": request.arguments[:_KEPT_ARGUMENTS]})


def _told(text: str) -> str:
    return text[:_MOST_TOLD].encode("utf-8", "backslashreplace").decode()


def _as_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
