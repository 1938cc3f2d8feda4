"""A model that says what it was told to say: for tests, examples and demonstrations without a network.

    ScriptedModel(call("python", code="print(6 * 7)"), "It is 42.")

Which step comes next is counted from the conversation, not from the model: the same conversation gets the same answer,
also from another process after a restart.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import Any, cast

import yaml

from fumehood.agents.messages import AssistantMessage, CallRequest
from fumehood.agents.models.interface import (
    ModelAnswer,
    ModelEvent,
    ModelFailure,
    ModelRequest,
    TextPiece,
    ThoughtPiece,
)
from fumehood.errors import ModelError, UsageError
from fumehood.keywords import known_keywords

Say = str | CallRequest | Sequence[str | CallRequest] | ModelAnswer | ModelError
Step = Say | Callable[[ModelRequest], Say]
"""A text, a call, several of these, a whole answer, a failure; or a function that makes one of the request."""

_CHARACTERS_IN_A_TOKEN = 4
_PIECE_CHARACTERS = 40


def call(tool: str, /, **arguments: object) -> CallRequest:
    """A call of a tool, as a step of a script or a part of one."""
    return CallRequest(call_id="", tool=tool, arguments=json.dumps(arguments))


class ScriptedModel:
    """Tokens are counted by length and cost nothing."""

    @known_keywords()
    def __init__(self, *steps: Step, name: str = "scripted") -> None:
        self._steps = steps
        self._name = name

    @classmethod
    def load(cls, path: str | Path) -> ScriptedModel:
        """Loads a YAML list: `- say: text`, `- call: python` with `arguments: {...}`, or both in one."""
        try:
            found: object = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise UsageError(f"the script {str(path)!r} cannot be read: {error}") from None
        if not isinstance(found, list):
            raise UsageError(f"the script {str(path)!r} must be a list of steps, such as `- say: hello`")
        steps = [_read_step(step, f"{path}: step {n}") for n, step in enumerate(cast("list[object]", found), 1)]
        return cls(*steps, name=f"scripted:{path}")

    @property
    def name(self) -> str:
        return self._name

    def connected(self) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    async def respond(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        place = sum(isinstance(message, AssistantMessage) for message in request.messages)
        if place >= len(self._steps):
            raise ModelError(
                ModelFailure.UNRECORDED, f"the script {self._name} has {len(self._steps)} steps and no more"
            )
        step = self._steps[place]
        answer = _answer(step(request) if callable(step) else step, place)
        if answer.thought:
            yield ThoughtPiece(answer.thought)
        for start in range(0, len(answer.text), _PIECE_CHARACTERS):
            yield TextPiece(answer.text[start : start + _PIECE_CHARACTERS])
        yield answer


def _answer(said: Say, place: int) -> ModelAnswer:
    if isinstance(said, ModelError):
        raise said
    if isinstance(said, ModelAnswer):
        return said
    parts = [said] if isinstance(said, str | CallRequest) else list(said)
    text = "\n".join(part for part in parts if isinstance(part, str))
    calls = tuple(
        part.model_copy(update={"call_id": part.call_id or f"step_{place + 1}_{number}"})
        for number, part in enumerate(part for part in parts if isinstance(part, CallRequest))
    )
    written = len(text) + sum(len(each.arguments) for each in calls)
    return ModelAnswer(text, calls=calls, output_tokens=written // _CHARACTERS_IN_A_TOKEN, cost=0.0)


def _read_step(step: object, where: str) -> Say:
    known = {"say", "call", "arguments"}
    if not isinstance(step, dict) or not known >= set(cast("dict[object, object]", step)):
        raise UsageError(f"{where} must be a mapping with `say`, `call` and `arguments`")
    given = cast("dict[str, Any]", step)
    arguments = given.get("arguments", {})
    if not isinstance(given.get("say", ""), str) or not isinstance(given.get("call", ""), str):
        raise UsageError(f"{where}: `say` and `call` must be texts")
    if not isinstance(arguments, dict) or ("arguments" in given and "call" not in given):
        raise UsageError(f"{where}: `arguments` must be a mapping and belongs to a `call`")
    parts: list[str | CallRequest] = []
    if "say" in given:
        parts.append(given["say"])
    if "call" in given:
        parts.append(call(given["call"], **cast("dict[str, Any]", arguments)))
    if not parts:
        raise UsageError(f"{where} says and calls nothing")
    return parts
