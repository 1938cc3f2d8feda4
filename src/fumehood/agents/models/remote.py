"""Every model that pydantic-ai reaches, in the shape that our agents need."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import cast

import anyio
from pydantic import JsonValue
from pydantic_ai import messages as theirs
from pydantic_ai.direct import model_request, model_request_stream
from pydantic_ai.models import Model as TheirModel
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from fumehood.agents.messages import USER, AssistantMessage, CallRequest, ChatMessage, UserMessage
from fumehood.agents.models.failures import as_model_error
from fumehood.agents.models.interface import (
    ModelAnswer,
    ModelEvent,
    ModelFailure,
    ModelRequest,
    TextPiece,
    ThoughtPiece,
)
from fumehood.agents.models.redaction import CredentialRedactor
from fumehood.agents.models.wire import MOST_BYTES, Wire
from fumehood.errors import ModelError
from fumehood.keywords import known_keywords
from fumehood.tools.tool import ToolSchema

_CLOSING_SECONDS = 10.0
_TIMEOUT_SECONDS = 600.0


class RemoteModel:
    """`settings` are pydantic-ai's, such as temperature, `request_timeout` and `max_retries`."""

    @known_keywords()
    def __init__(
        self,
        model: TheirModel,
        settings: ModelSettings | None = None,
        *,
        name: str | None = None,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        """`most_bytes` is how large an answer may be: of a larger one no more is read."""
        self._model, self._name = model, name or model.model_id
        self._wire = Wire(self._name, most_bytes)
        self._can_stream = True
        self._settings = ModelSettings(request_timeout=_TIMEOUT_SECONDS)
        self._settings.update(settings or {})
        self._redactor = CredentialRedactor(os.environ, _keys(model))

    @property
    def name(self) -> str:
        return self._name

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        await self._model.__aenter__()
        self._wire.attach(self._model)
        try:
            yield
        finally:
            # Its connections end with the task, also with one that is cancelled.
            with anyio.move_on_after(_CLOSING_SECONDS, shield=True):
                await self._model.__aexit__(None, None, None)

    async def respond(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """A server that does not stream although it was asked to is asked once more, and from then on in one piece."""
        if self._can_stream:
            arrival = self._wire.expect()
            try:
                async with aclosing(self._streamed(request)) as events:
                    async for event in events:
                        yield event
                return
            except ModelError as error:
                if error.kind != ModelFailure.MALFORMED or not arrival.is_whole:
                    raise
            self._can_stream = False
        response = await self._whole(request)
        if response.text:
            yield TextPiece(response.text)
        yield self._answer(response)

    async def _streamed(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        size, has_begun = 0, False
        try:
            async with model_request_stream(
                self._model,
                _messages(request),
                model_settings=self._settings,
                model_request_parameters=_parameters(request),
            ) as stream:
                async for event in stream:
                    has_begun = True
                    size += _size(event)
                    if size > self._wire.most_bytes:
                        raise self._wire.too_large()
                    if (piece := _piece(event)) is not None:
                        yield piece
                response = stream.get()
        except Exception as error:
            # Not `from error`: printing the cause would print what was taken out.
            raise as_model_error(error, self._name, self._redactor, has_begun=has_begun) from None
        yield self._answer(response)

    async def _whole(self, request: ModelRequest) -> theirs.ModelResponse:
        try:
            return await model_request(
                self._model,
                _messages(request),
                model_settings=self._settings,
                model_request_parameters=_parameters(request),
            )
        except Exception as error:
            raise as_model_error(error, self._name, self._redactor, has_begun=False) from None

    def _answer(self, response: theirs.ModelResponse) -> ModelAnswer:
        reason = response.finish_reason
        if reason == "content_filter":
            refusal = (response.provider_details or {}).get("refusal") or response.text or "no reason given"
            told = self._redactor.text(str(refusal))
            raise ModelError(ModelFailure.REFUSED, f"the model {self._name} would not answer: {told[:400]}")
        if reason == "length":
            raise ModelError(
                ModelFailure.TRUNCATED,
                f"the answer of the model {self._name} reached its limit of tokens and broke off",
            )
        if response.state != "complete" or reason == "error":
            raise ModelError(ModelFailure.TRUNCATED, f"the answer of the model {self._name} broke off")
        calls = tuple(_call(part) for part in response.tool_calls)
        if not response.text and not calls:
            raise ModelError(ModelFailure.MALFORMED, f"the model {self._name} answered nothing at all")
        usage = response.usage
        return ModelAnswer(
            text=response.text or "",
            thought=response.thinking or "",
            calls=calls,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            is_measured=usage.input_tokens + usage.output_tokens > 0 and not usage.unmeasured_requests,
            cost=_cost(response),
            native=_native(response),
        )


def _keys(model: TheirModel) -> Iterator[str]:
    """The API keys that its clients send, also of models that are wrapped in it."""
    key = getattr(getattr(model, "client", None), "api_key", None)
    if isinstance(key, str):
        yield key
    inner = (getattr(model, "wrapped", None), *getattr(model, "models", ()))
    for each in inner:
        if isinstance(each, TheirModel):
            yield from _keys(cast("TheirModel", each))


def _piece(event: object) -> TextPiece | ThoughtPiece | None:
    match event:
        case theirs.PartStartEvent(part=theirs.TextPart(content=text)) if text:
            return TextPiece(text)
        case theirs.PartStartEvent(part=theirs.ThinkingPart(content=text)) if text:
            return ThoughtPiece(text)
        case theirs.PartDeltaEvent(delta=theirs.TextPartDelta(content_delta=text)) if text:
            return TextPiece(text)
        case theirs.PartDeltaEvent(delta=theirs.ThinkingPartDelta(content_delta=str(text))) if text:
            return ThoughtPiece(text)
        case _:
            return None


def _size(event: object) -> int:
    """The number of characters that an event adds to the answer."""
    match event:
        case theirs.PartStartEvent(part=theirs.TextPart(content=text) | theirs.ThinkingPart(content=text)):
            return len(text)
        case theirs.PartStartEvent(part=theirs.ToolCallPart(args=str(text))):
            return len(text)
        case theirs.PartDeltaEvent(delta=theirs.TextPartDelta(content_delta=text)):
            return len(text)
        case theirs.PartDeltaEvent(delta=theirs.ThinkingPartDelta(content_delta=str(text))):
            return len(text)
        case theirs.PartDeltaEvent(delta=theirs.ToolCallPartDelta(args_delta=str(text))):
            return len(text)
        case _:
            return 0


def _call(part: theirs.ToolCallPart) -> CallRequest:
    given = part.args
    arguments = given if isinstance(given, str) else json.dumps(given or {})
    return CallRequest(call_id=part.tool_call_id, tool=part.tool_name, arguments=arguments)


def _cost(response: theirs.ModelResponse) -> float | None:
    try:
        return float(response.cost().total_price)
    except (LookupError, ValueError, AssertionError):
        return None


def _native(response: theirs.ModelResponse) -> JsonValue:
    (dumped,) = theirs.ModelMessagesTypeAdapter.dump_python([response], mode="json")
    return cast("JsonValue", dumped)


def _parameters(request: ModelRequest) -> ModelRequestParameters:
    tools = [_definition(tool) for tool in request.tools]
    if request.output_tool is None:
        return ModelRequestParameters(function_tools=tools)
    # Without text as an output, models that can be made to call a tool are made to.
    output = replace(_definition(request.output_tool), kind="output")
    return ModelRequestParameters(
        function_tools=tools, output_mode="tool", output_tools=[output], allow_text_output=False
    )


def _definition(tool: ToolSchema) -> ToolDefinition:
    return ToolDefinition(
        name=tool["name"], description=tool["description"], parameters_json_schema=dict(tool["parameters"])
    )


def _messages(request: ModelRequest) -> list[theirs.ModelMessage]:
    """Theirs alternate: what comes between two answers is one request."""
    found: list[theirs.ModelMessage] = []
    waiting: list[theirs.ModelRequestPart] = []
    for message in request.messages:
        if isinstance(message, AssistantMessage):
            if waiting:
                found.append(theirs.ModelRequest(parts=waiting))
                waiting = []
            found.append(_answered(message))
        else:
            waiting.append(_part(message))
    return [*found, theirs.ModelRequest(parts=waiting, instructions=request.instructions or None)]


def _part(message: ChatMessage) -> theirs.ModelRequestPart:
    match message:
        case UserMessage(source=source, text=text):
            return theirs.UserPromptPart(content=text if source == USER else f"{source} says:\n{text}")
        case AssistantMessage():
            raise AssertionError("an answer is no part of a request")
        case _:
            return theirs.ToolReturnPart(tool_name=message.tool, content=message.text, tool_call_id=message.call_id)


def _answered(message: AssistantMessage) -> theirs.ModelMessage:
    if message.native is not None:
        (restored,) = theirs.ModelMessagesTypeAdapter.validate_python([message.native])
        return restored
    parts: Sequence[theirs.ModelResponsePart] = [
        *([theirs.TextPart(content=message.text)] if message.text else []),
        *(theirs.ToolCallPart(tool_name=c.tool, args=c.arguments, tool_call_id=c.call_id) for c in message.calls),
    ]
    return theirs.ModelResponse(parts=parts)
