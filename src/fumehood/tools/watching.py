"""Output while it appears, for somebody who watches a call. Tools need not know whether anybody does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Unpack

from fumehood.events import Finished, Stderr, Stdout
from fumehood.results import Display, RunResult
from fumehood.sandbox.request import RunOptions

if TYPE_CHECKING:
    from fumehood.sandbox.sandbox import AsyncSandbox
    from fumehood.sandbox.session import AsyncSession

Watch = Callable[[Stdout | Stderr], None]
"""Is told as soon as something was written; must not wait."""
_WATCH: ContextVar[Watch | None] = ContextVar("watch", default=None)


@contextmanager
def watching(watch: Watch) -> Iterator[None]:
    """Inside of the block the output of every run of a tool is shown, as it is: nothing has filtered it yet."""
    token = _WATCH.set(watch)
    try:
        yield
    finally:
        _WATCH.reset(token)


async def run_watched(place: AsyncSandbox | AsyncSession, code: str, **options: Unpack[RunOptions]) -> RunResult:
    """As `place.run`, with the same result, whether anybody watches or not."""
    watch = _WATCH.get()
    if watch is None:
        return await place.run(code, **options)
    stdout, stderr = bytearray(), bytearray()
    displays: list[Display] = []
    async with aclosing(place.stream(code, **options)) as events:
        async for event in events:
            match event:
                case Stdout(data):
                    stdout += data
                    watch(event)
                case Stderr(data):
                    stderr += data
                    watch(event)
                case Display():
                    displays.append(event)
                case Finished(result):
                    return replace(
                        result, stdout_bytes=bytes(stdout), stderr_bytes=bytes(stderr), displays=tuple(displays)
                    )
    raise AssertionError("a stream ends with Finished")
