"""What a tool returns, and what of it a model reads: text for the model, and the facts for the application.

The text of a run says how it ended and has the beginning and end of what it printed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from fumehood.policy import format_size
from fumehood.results import Cause, RunResult, Status


class ToolStatus(StrEnum):
    SUCCESS = "success"
    ERROR = "error"
    """It was carried out and failed; the text says how."""
    DENIED = "denied"
    """The policy, or a person, said no; nothing was carried out."""
    INVALID = "invalid"
    """The call made no sense; the text says what to send instead."""


@dataclass(frozen=True, slots=True)
class LongText:
    """A text of any length, of which the model reads the beginning and the end."""

    text: str
    trimmed: bool = False
    """Whether blank lines at its end are left out."""

    def shortened(self, text: str) -> str:
        """What the model reads of it, given what the filters left of it."""
        shown = head_and_tail(text, MOST_CHARACTERS)
        return shown.rstrip() if self.trimmed else shown


TextPart = str | LongText


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What a tool returns. No filter has seen its text; the toolbox makes a `ToolResult` of it."""

    text: TextPart | tuple[TextPart, ...]
    status: ToolStatus = ToolStatus.SUCCESS
    run: RunResult | None = None
    value: object = None

    @property
    def parts(self) -> tuple[TextPart, ...]:
        return self.text if isinstance(self.text, tuple) else (self.text,)


@dataclass(frozen=True, slots=True)
class ToolResult:
    text: str
    """The text that the model reads."""
    status: ToolStatus = ToolStatus.SUCCESS
    run: RunResult | None = None
    """The result of a run in the sandbox, with the whole output, if the tool made one."""
    value: object = None
    """The return value of a function."""

    @property
    def ok(self) -> bool:
        return self.status is ToolStatus.SUCCESS


MOST_CHARACTERS = 12_000
_HEAD = 2 / 3
_MOST_NAMED = 20


def describe_run(result: RunResult) -> ToolOutput:
    """A run's result in words for a model."""
    status = ToolStatus.SUCCESS if result.ok else ToolStatus.ERROR
    if result.status is Status.DENIED:
        status = ToolStatus.DENIED
    return ToolOutput((in_words(result), *_details(result)), status, result)


def head_and_tail(text: str, most: int) -> str:
    """The beginning and the end, cut between lines where that is possible, and how much was left out."""
    if len(text) <= most:
        return text
    head, tail = text[: int(most * _HEAD)], text[len(text) - (most - int(most * _HEAD)) :]
    head = head[: head.rfind("\n") + 1] if "\n" in head[len(head) // 2 :] else head
    tail = tail[tail.find("\n") + 1 :] if "\n" in tail[: len(tail) // 2] else tail
    left_out = len(text) - len(head) - len(tail)
    lines = text.count("\n", len(head), len(text) - len(tail))
    return f"{head.rstrip(chr(10))}\n[... {left_out} characters, {lines} lines left out ...]\n{tail}"


def _details(result: RunResult) -> Iterator[TextPart]:
    yield from (f"\n- {denial}" for denial in result.denials if str(denial) not in result.detail)
    if result.restarted:
        yield "\nThe state of earlier runs was lost; this run began with none."
    if result.truncated:
        yield "\nThere was more output than is allowed; the rest is lost."
    compiler = result.compilation
    printed = [("stdout", result.stdout), ("stderr", result.stderr)]
    if compiler is not None and compiler.ok:
        printed.append(("compiler", compiler.stderr))
    for name, text in printed:
        if text:
            yield f"\n{name}:\n"
            yield LongText(text, trimmed=True)
    if not result.stdout and not result.stderr and result.ok:
        yield "\nIt printed nothing."
    yield from _products(result)


def in_words(result: RunResult) -> str:
    """How it ended, and what ended it."""
    match result.status:
        case Status.SUCCESS:
            return "Success."
        case Status.DENIED:
            return f"Denied by the policy, nothing was started: {result.detail}"
        case Status.CANCELLED:
            return "Cancelled before it ended."
        case _ if result.cause is Cause.EXIT and not result.detail:
            return f"Failed with exit code {result.exit_code}."
        case _:
            return f"Failed ({result.status.value}, {result.cause.value}): {result.detail}"


def _products(result: RunResult) -> Iterator[TextPart]:
    named = [f"{item.path} ({format_size(item.size)}, {item.media_type})" for item in result.artifacts]
    if named:
        more = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
        yield f"\nfiles: {', '.join(named[:_MOST_NAMED])}{more}"
    for display in result.displays:
        text = display.data.get("text/plain")
        kinds = [kind for kind in display.data if kind != "text/plain"]
        if isinstance(text, str) and not kinds:
            yield "\nvalue: "
            yield LongText(text)
        else:
            yield f"\nshown: {', '.join(kinds)}"
