"""Runs over HTTP: to their end, as a stream, or in the background."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from fumehood.errors import UsageError
from fumehood.events import Event
from fumehood.remote.handlers.parts import ServedRun
from fumehood.results import RunResult
from fumehood.sandbox.request import RunOptions
from fumehood.server.api.models import Id, NewRun, RunInput, RunNews, RunSignal, RunState
from fumehood.server.api.problems import PlainJson, RequestConflictError
from fumehood.server.api.routes import Caller, Server, scoped
from fumehood.server.api.sandboxes import in_use
from fumehood.server.api.streams import end_task, stream_answer, stream_kind
from fumehood.server.identity.principals import Scope
from fumehood.server.sandboxes.open_sandbox import OpenSandbox

T = TypeVar("T")
Wait = Annotated[float, Query(ge=0, le=60, allow_inf_nan=False, description="Seconds.")]
router = APIRouter(tags=["runs"])


@router.post("/sandboxes/{id}/runs", response_model=dict[str, Any], **scoped(Scope.RUN))
async def start_run(server: Server, caller: Caller, id: Id, wanted: NewRun, request: Request) -> Response:
    """Run code or a command.

    The answer is the result; with `Accept: application/x-ndjson` or `text/event-stream` output as it appears, and the
    result last. With `background` it is 202 and an id. A client that leaves ends its run, unless it is in the
    background or has an Idempotency-Key.
    """
    opened = await server.registry.find(caller.tenant, id)
    if wanted.background:
        return await _start(server, opened, wanted)
    if wanted.terminal is not None:
        raise UsageError("a terminal is for runs in the background")
    if kind := stream_kind(request):
        return await stream_answer(request, kind, _events(opened, wanted))
    with in_use(opened):
        result = await until_client_leaves(request, opened.box.run(wanted.code, **_options(wanted)))
    return PlainJson(result.to_dict())


async def _events(opened: OpenSandbox, wanted: NewRun) -> AsyncGenerator[Event, None]:
    with in_use(opened):
        async with aclosing(opened.box.stream(wanted.code, **_options(wanted))) as events:
            async for event in events:
                yield event


async def _start(server: Server, opened: OpenSandbox, wanted: NewRun) -> Response:
    server.background.check_room(opened)
    with in_use(opened):
        run = await opened.box.start(wanted.code, terminal=wanted.terminal, **_options(wanted))
    identifier = server.background.add(opened, run)
    answer = {"id": identifier, "sandbox": opened.id, "is_over": False, "result": None}
    return PlainJson(answer, 202, {"Location": f"/v1/runs/{identifier}"})


@router.get("/runs/{id}", response_model=RunState, **scoped(Scope.RUN))
async def show_run(server: Server, caller: Caller, id: Id, wait: Wait = 0) -> Response:
    """How a run in the background is; with `wait`, at its end or after so long."""
    opened, run = await server.background.find(server.registry, caller.tenant, id)
    with in_use(opened):
        result = await (_wait(run, wait) if wait else run.poll())
    return PlainJson(_state(id, opened, result))


async def _wait(run: ServedRun, seconds: float) -> RunResult | None:
    try:
        async with asyncio.timeout(seconds):
            return await run.wait()
    except TimeoutError:
        return None


def _state(identifier: str, opened: OpenSandbox, result: RunResult | None) -> dict[str, object]:
    described = result.to_dict() if result else None
    return {"id": identifier, "sandbox": opened.id, "is_over": result is not None, "result": described}


@router.get("/runs/{id}/output", response_model=RunNews, **scoped(Scope.RUN))
async def read_output(server: Server, caller: Caller, id: Id, wait: Wait = 0) -> Response:
    """What it has written since this was last asked."""
    opened, run = await server.background.find(server.registry, caller.tenant, id)
    with in_use(opened):
        output = await run.read(wait=wait)
        is_over = await run.poll() is not None
    stdout, stderr = output.stdout.decode("utf-8", "replace"), output.stderr.decode("utf-8", "replace")
    return PlainJson({"stdout": stdout, "stderr": stderr, "is_over": is_over})


@router.post("/runs/{id}/input", **scoped(Scope.RUN, 204))
async def write_input(server: Server, caller: Caller, id: Id, given: RunInput) -> Response:
    """Write to its standard input or its terminal."""
    opened, run = await server.background.find(server.registry, caller.tenant, id)
    with in_use(opened):
        if given.data:
            await run.write(given.data)
        if given.close:
            await run.close_stdin()
    return Response(status_code=204)


@router.post("/runs/{id}/signal", **scoped(Scope.RUN, 204))
async def send_signal(server: Server, caller: Caller, id: Id, given: RunSignal) -> Response:
    opened, run = await server.background.find(server.registry, caller.tenant, id)
    with in_use(opened):
        await run.send_signal(given.signal)
    return Response(status_code=204)


@router.post("/runs/{id}/cancel", response_model=RunState, **scoped(Scope.RUN))
async def cancel_run(server: Server, caller: Caller, id: Id) -> Response:
    """End it with all that it started."""
    opened, run = await server.background.find(server.registry, caller.tenant, id)
    with in_use(opened):
        return PlainJson(_state(id, opened, await run.kill()))


async def until_client_leaves(request: Request, work: Coroutine[Any, Any, T]) -> T:
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait([task, gone], return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise RequestConflictError("the client has left")
        return task.result()
    finally:
        for each in (task, gone):
            await end_task(each)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _options(wanted: NewRun) -> RunOptions:
    options: RunOptions = {}
    if wanted.code is not None:
        options["language"] = wanted.language
        options["args"] = wanted.args
    if wanted.argv is not None:
        options["argv"] = wanted.argv
    if wanted.name is not None:
        options["name"] = wanted.name
    if wanted.env:
        options["env"] = wanted.env
    if wanted.cwd:
        options["cwd"] = wanted.cwd
    if wanted.timeout is not None:
        options["timeout"] = wanted.timeout
    if wanted.stdin is not None:
        options["stdin"] = wanted.stdin
    return options
