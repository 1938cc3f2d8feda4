"""The output of a command as one text, in the order in which it was written, as on a terminal."""

from __future__ import annotations

from dataclasses import dataclass

from fumehood.errors import DeniedError, UsageError
from fumehood.events import Finished, Stderr, Stdout
from fumehood.integrations.policies import shortened_timeout
from fumehood.policy import Seconds
from fumehood.results import Cause, RunResult
from fumehood.sandbox.async_sandbox import AsyncSandbox
from fumehood.sandbox.command_check import DENIED_EXIT_CODE


@dataclass(frozen=True)
class CommandOutput:
    output: str
    exit_code: int
    truncated: bool
    result: RunResult | None = None
    """None when the run never started."""


async def run_command(box: AsyncSandbox, command: str, timeout: Seconds | None) -> CommandOutput:
    """Run a command line with bash. What is not valid or denied is in the output, where a model reads it."""
    written, result = bytearray(), None
    try:
        limit = shortened_timeout(box.policy, timeout)
        async for event in box.stream(command, language="bash", timeout=limit):
            if isinstance(event, Stdout | Stderr):
                written += event.data
            elif isinstance(event, Finished):
                result = event.result
    except (UsageError, DeniedError) as error:
        return CommandOutput(f"{error}\n", DENIED_EXIT_CODE, truncated=False)
    assert result is not None
    return CommandOutput(
        with_reason(written.decode("utf-8", "replace"), result), result.exit_code, result.truncated, result
    )


def with_reason(text: str, result: RunResult) -> str:
    """The text, and below it why the run ended, unless the program ended by itself."""
    if not result.detail or result.cause is Cause.SIGNAL:
        return text
    before = text if not text or text.endswith("\n") else f"{text}\n"
    return f"{before}{result.status.value}: {result.detail}\n"
