"""Structured answers: the type that an agent's answer must have, as a tool that a model calls with its answer.

A tool works with every model that calls tools, whether or not its interface has structured output. The call is never
carried out in a sandbox: its arguments are the answer.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, Generic, cast

from pydantic import PydanticUserError, TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError

from fumehood.agents.messages import NOTE, ChatMessage, ToolMessage, UserMessage
from fumehood.agents.result import OutputT
from fumehood.errors import UsageError
from fumehood.tools.calls import parse_object
from fumehood.tools.result import ToolStatus
from fumehood.tools.tool import ToolSchema

OUTPUT_TOOL = "final_result"
_DESCRIPTION = "Give the final answer to the task. The task ends with it."
# What a value that is not a JSON object is wrapped in: the arguments of a call are an object.
_VALUE = "value"
_MOST_PROBLEMS = 5
TEXT_REJECTED = f"The answer must be a call of the tool {OUTPUT_TOOL}; a text is not taken for it."


class InvalidOutputError(Exception):
    """The arguments are not a value of the type; the text is for the model."""


class OutputSchema(Generic[OutputT]):
    """A type whose values a model can give as its answer."""

    def __init__(self, output_type: type[OutputT], retries: int) -> None:
        if not isinstance(cast("object", retries), int) or isinstance(retries, bool) or retries < 0:
            raise UsageError(f"output_retries must be a number of at least 0; it is {retries!r}")
        self.retries = retries
        try:
            self._adapter: TypeAdapter[OutputT] = TypeAdapter(output_type)
            schema = self._adapter.json_schema()
        except (PydanticUserError, PydanticSchemaGenerationError) as error:
            problem = str(error).partition("\n")[0]
            raise UsageError(f"output_type {output_type!r} is not a type of JSON values: {problem}") from None
        self._is_wrapped = not _is_object(schema)
        self.tool: ToolSchema = {
            "name": OUTPUT_TOOL,
            "description": _DESCRIPTION,
            "parameters": _wrapped(schema) if self._is_wrapped else schema,
            "risk": "low",
        }

    def read(self, arguments: str) -> OutputT:
        """The value. InvalidOutputError says what was wrong."""
        given = _parse_answer(arguments)
        if self._is_wrapped:
            if set(given) != {_VALUE}:
                raise InvalidOutputError(f"The answer must be one JSON object with the key {_VALUE!r} and no other.")
            given = given[_VALUE]
        try:
            return self._adapter.validate_json(json.dumps(given))
        except ValidationError as error:
            raise InvalidOutputError(f"The answer is not valid. {_problems(error)}.") from None

    def attempts(self, messages: list[ChatMessage]) -> int:
        """How many answers of the turn under way were rejected, by the conversation, which outlives pauses."""
        count = 0
        for message in reversed(messages):
            if isinstance(message, UserMessage) and message.source != NOTE:
                break
            count += _is_rejection(message)
        return count


async def filter_arguments(arguments: str, clean: Callable[[str], Awaitable[str]]) -> str:
    """Arguments with every value cleaned; those that are not JSON are cleaned as one text."""
    try:
        return json.dumps(await _filtered(parse_object(arguments or "{}"), clean), ensure_ascii=False)
    except ValueError:
        return await clean(arguments)


async def _filtered(value: object, clean: Callable[[str], Awaitable[str]]) -> object:
    """A number can be a secret, too: one that the filters change becomes the text that they made of it."""
    if isinstance(value, dict):
        items = cast("dict[str, object]", value).items()
        return {await clean(key): await _filtered(item, clean) for key, item in items}
    if isinstance(value, list):
        return [await _filtered(item, clean) for item in cast("list[object]", value)]
    if value is None or isinstance(value, bool):
        return value
    text = value if isinstance(value, str) else json.dumps(value)
    cleaned = await clean(text)
    return value if cleaned == text else cleaned


def _parse_answer(arguments: str) -> dict[str, Any]:
    try:
        return parse_object(arguments or "{}")
    except ValueError as error:
        raise InvalidOutputError(f"The answer is {error}. Send one JSON object.") from None


def _is_rejection(message: ChatMessage) -> bool:
    match message:
        case ToolMessage():
            return message.tool == OUTPUT_TOOL and message.status is ToolStatus.INVALID
        case UserMessage():
            return message.source == NOTE and message.text == TEXT_REJECTED
        case _:
            return False


def _is_object(schema: dict[str, Any]) -> bool:
    reference = schema.get("$ref")
    if isinstance(reference, str):
        schema = schema["$defs"][reference.removeprefix("#/$defs/")]
    return schema.get("type") == "object"


def _wrapped(schema: dict[str, Any]) -> dict[str, Any]:
    definitions = schema.pop("$defs", None)
    wrapped: dict[str, Any] = {
        "type": "object",
        "properties": {_VALUE: schema},
        "required": [_VALUE],
        "additionalProperties": False,
    }
    return wrapped if definitions is None else {**wrapped, "$defs": definitions}


def _problems(error: ValidationError) -> str:
    problems = error.errors(include_url=False, include_input=False)[:_MOST_PROBLEMS]
    return "; ".join(f"{'.'.join(map(str, each['loc'])) or 'answer'}: {each['msg']}" for each in problems)
