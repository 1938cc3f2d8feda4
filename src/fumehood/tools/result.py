"""What a tool returns: text for the model, and the facts for the application.

The text of a run says how it ended and has the beginning and end of what it printed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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


def shaped(result: RunResult, clean: Callable[[str], str] = str) -> ToolResult:
    """A run's result in words for a model. Each of its texts is passed through `clean` before it is shortened."""
    status = ToolStatus.SUCCESS if result.ok else ToolStatus.ERROR
    if result.status is Status.DENIED:
        status = ToolStatus.DENIED
    return ToolResult(
        "\n".join(_lines(result, lambda text: head_and_tail(clean(text), MOST_CHARACTERS))), status, result
    )


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


def _lines(result: RunResult, shorten: Callable[[str], str]) -> Iterator[str]:
    yield in_words(result)
    yield from (f"- {denial}" for denial in result.denials if str(denial) not in result.detail)
    if result.restarted:
        yield "The state of earlier runs was lost; this run began with none."
    if result.truncated:
        yield "There was more output than is allowed; the rest is lost."
    compiler = result.compilation
    for name, text in (("stdout", result.stdout), ("stderr", result.stderr)):
        if text:
            yield f"{name}:\n{shorten(text).rstrip()}"
    if compiler is not None and compiler.ok and compiler.stderr:
        yield f"compiler:\n{shorten(compiler.stderr).rstrip()}"
    if not result.stdout and not result.stderr and result.ok:
        yield "It printed nothing."
    yield from _products(result, shorten)


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


def _products(result: RunResult, shorten: Callable[[str], str]) -> Iterator[str]:
    named = [f"{item.path} ({format_size(item.size)}, {item.media_type})" for item in result.artifacts]
    if named:
        more = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
        yield f"files: {', '.join(named[:_MOST_NAMED])}{more}"
    if result.displays:
        yield from _displays(result, shorten)


def _displays(result: RunResult, shorten: Callable[[str], str]) -> Iterator[str]:
    for display in result.displays:
        text = display.data.get("text/plain")
        kinds = [kind for kind in display.data if kind != "text/plain"]
        if isinstance(text, str) and not kinds:
            yield f"value: {shorten(text)}"
        else:
            yield f"shown: {', '.join(kinds)}"
