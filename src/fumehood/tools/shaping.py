"""A run's result in words that a model can work with: how it ended, and the beginning and end of what it printed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from fumehood.policy import format_size
from fumehood.results import Cause, RunResult, Status
from fumehood.tools.result import ToolResult, ToolStatus

MOST_CHARACTERS = 12_000
_HEAD = 2 / 3
_MOST_NAMED = 20
# What the toolbox under way does to texts; tools are functions that know nothing of it.
_CLEAN: ContextVar[Callable[[str], str]] = ContextVar("clean", default=str)


def shaped(result: RunResult, most: int = MOST_CHARACTERS) -> ToolResult:
    """`most` characters of each stream."""
    status = ToolStatus.SUCCESS if result.ok else ToolStatus.ERROR
    if result.status is Status.DENIED:
        status = ToolStatus.DENIED
    return ToolResult("\n".join(_lines(result, most)), status, result)


@contextmanager
def cleaning(clean: Callable[[str], str]) -> Iterator[None]:
    """Inside of the block every text is cleaned before it is cut: half of a secret would not be recognised any more."""
    token = _CLEAN.set(clean)
    try:
        yield
    finally:
        _CLEAN.reset(token)


def shortened(text: str, most: int) -> str:
    """What a tool shows of a text to the model."""
    return head_and_tail(_CLEAN.get()(text), most)


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


def _lines(result: RunResult, most: int) -> Iterator[str]:
    yield in_words(result)
    yield from (f"- {denial}" for denial in result.denials if str(denial) not in result.detail)
    if result.restarted:
        yield "The state of earlier runs was lost; this run began with none."
    if result.truncated:
        yield "There was more output than is allowed; the rest is lost."
    compiler = result.compilation
    for name, text in (("stdout", result.stdout), ("stderr", result.stderr)):
        if text:
            yield f"{name}:\n{shortened(text, most).rstrip()}"
    if compiler is not None and compiler.ok and compiler.stderr:
        yield f"compiler:\n{shortened(compiler.stderr, most).rstrip()}"
    if not result.stdout and not result.stderr and result.ok:
        yield "It printed nothing."
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


def _products(result: RunResult) -> Iterator[str]:
    named = [f"{item.path} ({format_size(item.size)}, {item.media_type})" for item in result.artifacts]
    if named:
        more = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
        yield f"files: {', '.join(named[:_MOST_NAMED])}{more}"
    if result.displays:
        yield from _displays(result)


def _displays(result: RunResult) -> Iterator[str]:
    for display in result.displays:
        text = display.data.get("text/plain")
        kinds = [kind for kind in display.data if kind != "text/plain"]
        if isinstance(text, str) and not kinds:
            yield f"value: {shortened(text, MOST_CHARACTERS)}"
        else:
            yield f"shown: {', '.join(kinds)}"
