"""A compiled language: the compiler's run, then the program's, each an ordinary run with its own limits and verdict.

The product goes from one to the other through a folder in the workspace, the one place that runs share. The program's
run takes it out of there before the program starts, so that no program finds it among its files.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial

import anyio

from fumehood.backends.interface import RunRequest
from fumehood.backends.languages import Toolchain, find_language
from fumehood.errors import FumehoodError
from fumehood.events import Event, Finished
from fumehood.frozen import frozen
from fumehood.guest.contract.paths import PRODUCT_FOLDER, WORKSPACE
from fumehood.policy import Policy, Resources
from fumehood.results import Cause, RunResult

Run = Callable[[RunRequest], Awaitable[RunResult]]
Stream = Callable[[RunRequest], AsyncGenerator[Event, None]]

_SOURCE = "{source}"
_CLEARING_SECONDS = 10.0


@frozen
class Build:
    """The runs that one request for a compiled language becomes."""

    compiling: RunRequest
    running: RunRequest
    clearing: RunRequest
    """Removes what the compiler left; most of the time nothing is."""


def plan_build(request: RunRequest, policy: Policy) -> Build | None:
    """None when there is nothing to compile."""
    toolchain = find_language(request.language).toolchain
    if toolchain is None or request.source is None:
        return None
    fill = partial(_filled, request.source, toolchain, policy.resources)
    folder = f"{WORKSPACE}/.build-{secrets.token_hex(8)}"
    before, after = _around_source(fill(toolchain.compiling, folder))
    plain = replace(request, source=None, arguments=(), environment={}, stdin=None, is_offline=True)
    return Build(
        compiling=replace(
            plain,
            source=request.source,
            interpreter=before,
            arguments=after,
            # Compilers keep caches and settings at home, which is the workspace for everyone else.
            environment={"HOME": "/tmp", **toolchain.environment},
            leaves=folder,
        ),
        running=replace(request, source=None, interpreter=fill(toolchain.running, PRODUCT_FOLDER), takes=folder),
        clearing=replace(plain, arguments=("rm", "-rf", "--", folder), cwd="", timeout_seconds=_CLEARING_SECONDS),
    )


async def run_compiled(build: Build, run: Run) -> RunResult:
    async with _left_clean(build, run):
        result = _compiled(await run(build.compiling))
        return replace(await run(build.running), compilation=result) if result.ok else result


async def stream_compiled(build: Build, stream: Stream, run: Run) -> AsyncGenerator[Event, None]:
    """The compiler's output first, then the program's."""
    result: RunResult | None = None
    async with _left_clean(build, run):
        for request in (build.compiling, build.running):
            async with aclosing(stream(request)) as events:
                async for event in events:
                    if not isinstance(event, Finished):
                        yield event
                    elif result is None:
                        result = _compiled(event.result)
                    else:
                        result = replace(event.result, compilation=result)
            assert result is not None, "a stream ends with Finished"
            if not result.ok:
                break
    assert result is not None
    yield Finished(result)


@asynccontextmanager
async def _left_clean(build: Build, run: Run) -> AsyncIterator[None]:
    """Whatever happens in the block, cancellation included, the workspace is afterwards as if nothing was compiled."""
    try:
        yield
    finally:
        # A sandbox that cannot do even this is gone, and its workspace with it; the block's own news is the better one.
        with anyio.CancelScope(shield=True), suppress(FumehoodError):
            await run(build.clearing)


def _compiled(compilation: RunResult) -> RunResult:
    """The compiler's result; one that failed is the whole result, and says that no program ran."""
    if compilation.ok:
        return compilation
    if compilation.cause is Cause.EXIT:
        detail = f"compilation failed: the compiler exited with code {compilation.exit_code}"
    else:
        detail = f"compilation failed, the compiler did not finish: {compilation.detail}"
    return replace(compilation, detail=detail, compilation=compilation)


def _filled(
    source: bytes, toolchain: Toolchain, resources: Resources, command: tuple[str, ...], folder: str
) -> tuple[str, ...]:
    values = {
        "source": _SOURCE,
        "build": folder,
        "workspace": WORKSPACE,
        "program": toolchain.names(source).program,
        "memory": str(resources.memory),
        "cpus": str(max(1, math.ceil(resources.cpus))),
    }
    return tuple(word.format_map(values) for word in command)


def _around_source(command: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """A backend puts the source's file between what stands in front of it and its arguments."""
    place = command.index(_SOURCE)
    return command[:place], command[place + 1 :]
