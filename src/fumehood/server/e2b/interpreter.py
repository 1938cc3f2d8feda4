"""The code interpreter (port 49999): runs code in contexts and streams its output as lines of JSON."""

from __future__ import annotations

import ast
import json
import re
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from fumehood.errors import FumehoodError
from fumehood.events import Event, Finished, Stderr, Stdout
from fumehood.results import Display, RunResult, Status
from fumehood.server.e2b.bodies import read_json
from fumehood.server.e2b.errors import failure_of
from fumehood.server.e2b.fields import field, texts
from fumehood.server.e2b.sandboxes import E2bSandbox

_NAMES = {
    "text/plain": "text",
    "text/html": "html",
    "text/markdown": "markdown",
    "image/svg+xml": "svg",
    "image/png": "png",
    "image/jpeg": "jpeg",
    "application/pdf": "pdf",
    "text/latex": "latex",
    "application/json": "json",
    "application/javascript": "javascript",
}
_TRACEBACK_BYTES = 64 * 1024
_LAST_LINE = re.compile(r"([A-Za-z_][\w.]*)(?:: (.*))?", re.DOTALL)


async def execute(sandbox: E2bSandbox, request: Request) -> Response:
    message = await read_json(request)
    code, language = field(message, "code", str), field(message, "language", str, "")
    identifier, variables = field(message, "context_id", str, ""), texts(message, "env_vars")
    if identifier:
        context = sandbox.contexts.find(identifier)
    elif language.lower() in ("", "python", "python3"):
        context = sandbox.contexts.usual()
    else:
        events = sandbox.contexts.stream_once(language, code, variables)
        return _streamed(sandbox, _lines(events, 1, RunLog(has_value=False)))
    await context.prepare()
    events = context.stream(code, variables)
    return _streamed(sandbox, _lines(events, context.runs + 1, RunLog(has_value=_ends_with_expression(code))))


def _streamed(sandbox: E2bSandbox, lines: AsyncGenerator[str, None]) -> Response:
    async def in_use() -> AsyncGenerator[str, None]:
        with sandbox.in_use():
            async with aclosing(lines):
                async for line in lines:
                    yield line

    return StreamingResponse(in_use(), media_type="application/x-ndjson", headers={"X-Accel-Buffering": "no"})


async def create_context(sandbox: E2bSandbox, request: Request) -> Response:
    message = await read_json(request)
    context = await sandbox.contexts.create(field(message, "language", str, ""), field(message, "cwd", str, ""))
    return JSONResponse(context.description)


async def list_contexts(sandbox: E2bSandbox, request: Request) -> Response:
    return JSONResponse([context.description for context in sandbox.contexts.list()])


async def remove_context(sandbox: E2bSandbox, request: Request) -> Response:
    await sandbox.contexts.remove(request.path_params["context"])
    return Response(status_code=204)


async def restart_context(sandbox: E2bSandbox, request: Request) -> Response:
    await sandbox.contexts.find(request.path_params["context"]).restart()
    return Response(status_code=204)


class RunLog:
    """What of a run decides how its end is told: the last display, and the end of what was written as errors."""

    def __init__(self, *, has_value: bool) -> None:
        self._has_value, self.errors = has_value, b""
        self._held: dict[str, Any] | None = None

    def show(self, display: Display) -> Sequence[Mapping[str, Any]]:
        """Results to send now. The value of the last expression is the last one, but for figures shown at the end."""
        shown = _result(display)
        ready = [] if self._held is None else [self._held | {"is_main_result": self._is_main_before(shown)}]
        self._held = shown
        return ready

    def _is_main_before(self, following: Mapping[str, Any]) -> bool:
        is_main = self._has_value and _is_figure(following) and not _is_figure(self._held or {})
        self._has_value = self._has_value and not is_main
        return is_main

    def finish(self) -> Sequence[Mapping[str, Any]]:
        held, self._held = self._held, None
        return [] if held is None else [held | {"is_main_result": self._has_value}]

    def note_errors(self, data: bytes) -> None:
        self.errors = (self.errors + data)[-_TRACEBACK_BYTES:]


def _is_figure(result: Mapping[str, Any]) -> bool:
    return "png" in result and str(result.get("text", "")).startswith("<Figure ")


def _result(display: Display) -> dict[str, Any]:
    data: Mapping[str, Any] = display.to_dict()["data"]  # pyright: ignore[reportAssignmentType]
    known = {_NAMES[kind]: value for kind, value in data.items() if kind in _NAMES}
    extra = {kind: value for kind, value in data.items() if kind not in _NAMES}
    return {"type": "result", **known, **({"extra": extra} if extra else {})}


async def _lines(events: AsyncGenerator[Event, None], number: int, log: RunLog) -> AsyncGenerator[str, None]:
    yield _line({"type": "number_of_executions", "execution_count": number})
    try:
        async with aclosing(events):
            async for event in events:
                for message in _messages(event, log):
                    yield _line(message)
    except FumehoodError as error:
        failure = failure_of(error)
        yield _line({"type": "error", "name": type(error).__name__, "value": failure.message, "traceback": ""})


def _line(message: Mapping[str, Any]) -> str:
    return json.dumps(message) + "\n"


def _messages(event: Event, log: RunLog) -> Sequence[Mapping[str, Any]]:
    match event:
        case Stdout(data):
            return [_output("stdout", data)]
        case Stderr(data):
            log.note_errors(data)
            return [_output("stderr", data)]
        case Display():
            return log.show(event)
        case Finished(result):
            return [*log.finish(), *([] if result.ok else [_error(result, log.errors)])]


def _output(stream: str, data: bytes) -> Mapping[str, Any]:
    return {"type": stream, "text": data.decode("utf-8", "replace"), "timestamp": time.time_ns()}


def _error(result: RunResult, errors: bytes) -> Mapping[str, Any]:
    text = errors.decode("utf-8", "replace")
    if result.status is not Status.ERROR or not (found := _exception(text)):
        return {"type": "error", "name": result.status.value, "value": result.detail, "traceback": text}
    name, value = found
    return {"type": "error", "name": name, "value": value, "traceback": text}


def _exception(text: str) -> tuple[str, str] | None:
    """Name and message: what begins with the last line that is not indented, but for the lines of the message."""
    lines = text.rstrip("\n").splitlines()
    starts = [at for at, line in enumerate(lines) if line.startswith((" ", "Traceback "))]
    found = _LAST_LINE.fullmatch("\n".join(lines[starts[-1] + 1 :] if starts else lines[-1:]))
    return (found[1], found[2] or "") if found else None


def _ends_with_expression(code: str) -> bool:
    """Whether the run may have a value. What Python cannot parse, IPython may know; it has none."""
    try:
        statements = ast.parse(code).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return bool(statements) and isinstance(statements[-1], ast.Expr)
