"""What a model answered, written down; and a model that answers the same, without a network, to the same requests.

A recording is a file of JSON lines: the request, its digest, and the answer or the failure. Keys are not in it: they
belong to the connection, of which nothing is written. Credentials in the conversation itself are taken out, those that
look like one and those that the host's variables hold, before anything is written or compared.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from fumehood.agents.messages import ChatMessage
from fumehood.agents.models.interface import Model, ModelAnswer, ModelEvent, ModelFailure, ModelRequest, TextPiece
from fumehood.agents.models.redaction import CredentialRedactor
from fumehood.errors import ModelError, UsageError
from fumehood.keywords import known_keywords

_FORMAT = 1
_ANSWERS: TypeAdapter[ModelAnswer] = TypeAdapter(ModelAnswer)
_MESSAGES: TypeAdapter[tuple[ChatMessage, ...]] = TypeAdapter(tuple[ChatMessage, ...])


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    version: int
    model: str
    digest: str
    request: dict[str, Any]
    answer: dict[str, Any] | None = None
    failure: ModelFailure | None = None
    detail: str = ""


class RecordingModel:
    """Passes requests on and writes down what comes back, one line for each. `secrets` are names and values."""

    @known_keywords()
    def __init__(self, model: Model, path: str | os.PathLike[str], *, secrets: Mapping[str, str] | None = None) -> None:
        self._model, self._path = model, Path(path)
        self._redactor = _RequestRedactor(os.environ, (secrets or {}).values())

    @property
    def name(self) -> str:
        return self._model.name

    def connected(self) -> AbstractAsyncContextManager[None]:
        return self._model.connected()

    async def respond(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        clean = self._redactor.request(request)
        try:
            async with aclosing(self._model.respond(request)) as events:
                async for event in events:
                    if isinstance(event, ModelAnswer):
                        self._write(clean, answer=self._redactor.data(_ANSWERS.dump_python(event, mode="json")))
                    yield event
        except ModelError as error:
            self._write(clean, failure=ModelFailure(error.kind), detail=self._redactor.text(str(error)))
            raise

    def _write(self, clean: dict[str, Any], **outcome: Any) -> None:
        entry = _Entry(version=_FORMAT, model=self.name, digest=_digest(clean), request=clean, **outcome)
        line = entry.model_dump_json(exclude_none=True) + "\n"
        try:
            # A conversation is its owner's business.
            handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            with open(handle, "a", encoding="utf-8", errors="backslashreplace") as stream:
                stream.write(line)
        except OSError as error:
            raise UsageError(f"the recording {str(self._path)!r} cannot be written: {error.strerror}") from error


class ReplayModel:
    """Answers as it was recorded. The same request again gets the next answer that it got then, and then the last."""

    @known_keywords()
    def __init__(self, path: str | os.PathLike[str], *, secrets: Mapping[str, str] | None = None) -> None:
        self._path = Path(path)
        self._redactor = _RequestRedactor(os.environ, (secrets or {}).values())
        self._entries = _read(self._path)
        self._turns: dict[str, int] = {}

    @property
    def name(self) -> str:
        return f"replay:{self._path}"

    def connected(self) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    async def respond(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        digest = _digest(self._redactor.request(request))
        known = self._entries.get(digest)
        if known is None:
            last = request.messages[-1].text if request.messages else ""
            raise ModelError(
                ModelFailure.UNRECORDED,
                f"{self._path} has no answer to this request ({digest[:12]}, after {len(request.messages)} messages, "
                f"the last: {last[:80]!r}); record it anew with record:{self._path}:MODEL",
            )
        turn = self._turns.get(digest, 0)
        self._turns[digest] = turn + 1
        entry = known[min(turn, len(known) - 1)]
        if entry.failure is not None:
            raise ModelError(entry.failure, entry.detail)
        answer = _ANSWERS.validate_python(entry.answer)
        if answer.text:
            yield TextPiece(answer.text)
        yield answer


def _read(path: Path) -> dict[str, list[_Entry]]:
    entries: dict[str, list[_Entry]] = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the recording {str(path)!r} cannot be read: {error}") from None
    for number, line in enumerate(lines, 1):
        try:
            entry = _Entry.model_validate_json(line)
            if entry.answer is not None:
                _ANSWERS.validate_python(entry.answer)
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            raise UsageError(f"{path}:{number}: this is no line of a recording: {problem['msg']}") from None
        if entry.version != _FORMAT:
            raise UsageError(f"{path}:{number}: version {entry.version} of the format is not known; record it anew")
        entries.setdefault(entry.digest, []).append(entry)
    return entries


def _digest(clean: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(clean, sort_keys=True, ensure_ascii=True).encode("ascii")).hexdigest()


class _RequestRedactor(CredentialRedactor):
    def request(self, request: ModelRequest) -> dict[str, Any]:
        """What makes a difference to the answer. How the model's own interface spells earlier answers does not."""
        messages = _MESSAGES.dump_python(request.messages, mode="json", exclude={"__all__": {"native"}})
        whole = {"instructions": request.instructions, "messages": messages, "tools": list(request.tools)}
        if request.output_tool is not None:
            whole["output_tool"] = request.output_tool
        return cast("dict[str, Any]", self.data(whole))
