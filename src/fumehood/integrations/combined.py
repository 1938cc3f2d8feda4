"""A command's output as one text, in the order in which it appeared, as somebody at a terminal would see it."""

from __future__ import annotations

from dataclasses import dataclass

from fumehood.errors import DeniedError, UsageError
from fumehood.events import Finished, Stderr, Stdout
from fumehood.integrations.policies import shortened_timeout
from fumehood.policy import Seconds
from fumehood.results import Cause, RunResult
from fumehood.sandbox.command_check import DENIED_EXIT_CODE
from fumehood.sandbox.sandbox import AsyncSandbox


@dataclass(frozen=True)
class Combined:
    output: str
    exit_code: int
    truncated: bool
    result: RunResult | None = None
    """None when it never began."""


async def run_combined(box: AsyncSandbox, command: str, timeout: Seconds | None) -> Combined:
    """A command line for bash. What makes no sense or is denied is told in the output, where a model can read it."""
    written, result = bytearray(), None
    try:
        limit = shortened_timeout(box.policy, timeout)
        async for event in box.stream(command, language="bash", timeout=limit):
            if isinstance(event, Stdout | Stderr):
                written += event.data
            elif isinstance(event, Finished):
                result = event.result
    except (UsageError, DeniedError) as error:
        return Combined(f"{error}\n", DENIED_EXIT_CODE, truncated=False)
    assert result is not None
    return Combined(told(written.decode("utf-8", "replace"), result), result.exit_code, result.truncated, result)


def told(text: str, result: RunResult) -> str:
    """With the reason when it was not the program's own end: a model can do something about it."""
    if not result.detail or result.cause is Cause.SIGNAL:
        return text
    before = text if not text or text.endswith("\n") else f"{text}\n"
    return f"{before}{result.status.value}: {result.detail}\n"
