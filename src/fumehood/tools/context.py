"""What a tool is given for one call: the sandbox, and the ways to show, shorten and record what comes of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Unpack

from fumehood.audit.trail import OFF, Trail
from fumehood.events import Finished, Stderr, Stdout
from fumehood.results import Display, RunResult
from fumehood.sandbox.request import RunOptions
from fumehood.tools.result import MOST_CHARACTERS, ToolResult, head_and_tail, shaped

if TYPE_CHECKING:
    from fumehood.sandbox.async_sandbox import AsyncSandbox
    from fumehood.sandbox.session import AsyncSession

Watch = Callable[[Stdout | Stderr], None]
"""Is called as soon as a run has written something, with what it wrote, unfiltered; must not block."""


@dataclass(frozen=True, slots=True)
class ToolContext:
    sandbox: AsyncSandbox
    watch: Watch | None = None
    clean: Callable[[str], str] = str
    """Applies the policy's filters to a text. Before it is cut: half of a secret would not be recognised any more."""
    audit: Trail = OFF
    """Ties what the tool records to its call."""

    def shorten(self, text: str) -> str:
        """What the model reads of a long text: its beginning and its end, cleaned."""
        return head_and_tail(self.clean(text), MOST_CHARACTERS)

    def shape(self, result: RunResult) -> ToolResult:
        """A run's result in words for the model."""
        return shaped(result, self.clean)

    async def run(self, code: str, *, session: AsyncSession | None = None, **options: Unpack[RunOptions]) -> RunResult:
        """Run code in the sandbox, or in a session of it; the result is the same whether `watch` is given or not."""
        place = session or self.sandbox
        if self.watch is None:
            return await place.run(code, **options)
        stdout, stderr = bytearray(), bytearray()
        displays: list[Display] = []
        async with aclosing(place.stream(code, **options)) as events:
            async for event in events:
                match event:
                    case Stdout(data):
                        stdout += data
                        self.watch(event)
                    case Stderr(data):
                        stderr += data
                        self.watch(event)
                    case Display():
                        displays.append(event)
                    case Finished(result):
                        return replace(
                            result, stdout_bytes=bytes(stdout), stderr_bytes=bytes(stderr), displays=tuple(displays)
                        )
        raise AssertionError("a stream ends with Finished")
