"""Events of a task as text on a terminal, or as JSON lines for a program."""

from __future__ import annotations

import json
import re
import shutil
import sys
from typing import Protocol, cast

from fumehood.agents.events import (
    ApprovalRequested,
    ApprovalSettled,
    ArtifactFound,
    CallMade,
    CallReturned,
    Compacted,
    TaskEnded,
    TaskEvent,
    TaskStarted,
    TextDelta,
    ThoughtDelta,
)
from fumehood.agents.result import Stop, TaskResult
from fumehood.characters import neutralise, one_line
from fumehood.cli.output import BOLD, DIM, GREEN, RED, YELLOW, paint, say
from fumehood.policy import format_size
from fumehood.tools.approvals.display import COLOURS, Line, draw
from fumehood.tools.result import ToolStatus

_CODE = {"code": "python", "command": "bash"}
_STATUS_COLOURS = {ToolStatus.SUCCESS: GREEN, ToolStatus.DENIED: RED, ToolStatus.INVALID: YELLOW, ToolStatus.ERROR: RED}
_MOST_LINES = 40
_GUTTER = 7
_NOT_ASCII = re.compile(r"[^ -~]")


class Renderer(Protocol):
    def show(self, event: TaskEvent) -> None: ...


class JsonLines:
    def show(self, event: TaskEvent) -> None:
        print(_as_json(event.to_dict(), sys.stdout.encoding), flush=True)


class Screen:
    """Everything that a model or a program wrote is made harmless before a terminal sees it."""

    def __init__(self, out: str | None, *, has_prompt: bool) -> None:
        """`has_prompt` says that a prompt at the same terminal shows approvals."""
        self._out, self._has_prompt = out, has_prompt
        self._is_inside_line = self._is_thinking = False
        self._calls: set[str] = set()
        """The calls without a result yet."""
        self._are_several = False

    def show(self, event: TaskEvent) -> None:
        if self._is_thinking != isinstance(event, ThoughtDelta):
            self._is_thinking = not self._is_thinking
            self._end_line()
        match event:
            case TaskStarted():
                self._line(paint(f"{event.agent} asks {one_line(event.model)}, {event.task_id}", DIM))
            case TextDelta(text=text):
                self._write(neutralise(text))
            case ThoughtDelta(text=text):
                self._write(neutralise(text), DIM)
            case Compacted():
                told = f"the conversation is long: the model reads {event.messages_after} messages from here on"
                self._line(paint(told, DIM))
            case CallMade():
                self._call(event)
            case CallReturned():
                self._returned(event)
            case ApprovalRequested() | ApprovalSettled() if self._has_prompt:
                self._end_line()
            case ApprovalRequested(approval=request):
                self._line(paint(f"{one_line(request.call.tool)} waits for an approval, {request.id}", YELLOW))
            case ApprovalSettled(approval=request):
                self._line(f"{request.id}: {one_line(request.told())}")
            case ArtifactFound(artifact=artifact):
                where = f", saved to {self._out}" if self._out else ""
                told = f"{artifact.path} ({format_size(artifact.size)}, {artifact.media_type}{where})"
                self._line(f"{paint('file', BOLD)} {one_line(told)}")
            case TaskEnded(result=result):
                self._end_line()
                say(_ending(result))

    def _call(self, event: CallMade) -> None:
        self._are_several = bool(self._calls)
        self._calls.add(event.call_id)
        self._line(paint(f"-> {one_line(event.tool[:100])}", BOLD))
        code, language, others = _taken_apart(event.arguments)
        width = max(20, shutil.get_terminal_size().columns - _GUTTER)
        for line in _shortened(draw(code, width, language)) if code else ():
            self._numbered(line)
        if others:
            self._line(paint("     with ", DIM) + one_line(others[:1000]))

    def _numbered(self, line: Line) -> None:
        shown = "".join(
            paint(piece.text, COLOURS.get(piece.style, "0")) if piece.style else piece.text for piece in line.pieces
        )
        number = "" if line.number is None else str(line.number)
        self._line(f"{paint(f'{number:>4} |', DIM)} {shown}".rstrip())

    def _returned(self, event: CallReturned) -> None:
        first, *rest = neutralise(event.text).splitlines() or [""]
        arrow = f"<- {one_line(event.tool[:100])}:" if self._are_several else "<-"
        self._calls.discard(event.call_id)
        self._line(f"{paint(arrow, BOLD)} {paint(first, _STATUS_COLOURS[event.status])}")
        for line in rest[:_MOST_LINES]:
            self._line(f"   {line}".rstrip())
        if len(rest) > _MOST_LINES:
            self._line(paint(f"   and {len(rest) - _MOST_LINES} more lines", DIM))

    def _write(self, text: str, style: str = "") -> None:
        sys.stdout.write(paint(text, style) if style else text)
        sys.stdout.flush()
        self._is_inside_line = not text.endswith("\n") if text else self._is_inside_line

    def _line(self, text: str) -> None:
        self._end_line()
        self._write(f"{text}\n")

    def _end_line(self) -> None:
        if self._is_inside_line:
            self._write("\n")


def _as_json(data: object, encoding: str) -> str:
    """Text as it is, where it can be written. What a terminal obeys, or takes for the end of a line, is escaped."""
    text = _NOT_ASCII.sub(
        lambda match: match[0] if match[0].isprintable() else json.dumps(match[0])[1:-1],
        json.dumps(data, ensure_ascii=False),
    )
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return json.dumps(data)
    return text


def _taken_apart(arguments: str) -> tuple[str, str, str]:
    """The code among them, its language, and the rest as JSON; all of them as they are when they are no JSON."""
    try:
        found: object = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return "", "", arguments
    if not isinstance(found, dict):
        return "", "", arguments
    given = cast("dict[str, object]", found)
    name = next((name for name in _CODE if isinstance(given.get(name), str)), None)
    others = {key: value for key, value in given.items() if key != name and value not in (None, "")}
    text = json.dumps(others, ensure_ascii=False) if others else ""
    return (str(given[name]).rstrip("\n"), _CODE[name], text) if name else ("", "", text)


def _shortened(lines: list[Line]) -> list[Line]:
    return lines if len(lines) <= _MOST_LINES else [*lines[: _MOST_LINES - 1], lines[-1]]


def _ending(result: TaskResult[object]) -> str:
    usage, stop = result.usage, result.stop_reason
    counted = [_counted(usage.turns, "turn"), _counted(usage.tool_calls, "call"), _counted(usage.tokens, "token")]
    cost = [f"{usage.cost:.4f} dollars"] if usage.cost else []
    told = "done" if stop.kind is Stop.DONE else str(stop)
    return f"{told} ({', '.join([*counted, *cost])}; {result.task_id})"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
