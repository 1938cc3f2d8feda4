"""`process.Process`: starts processes, reads along, writes to them, ends them."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from fumehood.errors import UsageError
from fumehood.events import Finished, Stderr, Stdout
from fumehood.policy.quantities import GIB
from fumehood.results import RunResult, Status
from fumehood.server.e2b.bodies import read_json
from fumehood.server.e2b.envelopes import MEDIA_TYPE, end_of_stream, envelope, messages_of, read_envelope
from fumehood.server.e2b.errors import CallFailure
from fumehood.server.e2b.fields import decoded, field, section, texts, words
from fumehood.server.e2b.processes import Process, ProcessSpec, Reader
from fumehood.server.e2b.sandboxes import E2bSandbox

_KEEPALIVE_SECONDS = 90.0
_SHORTEST_KEEPALIVE = 1.0
_STREAM_INPUT_SECONDS = 120.0


def streaming(frames: AsyncGenerator[bytes, None]) -> Response:
    return StreamingResponse(frames, media_type=MEDIA_TYPE, headers={"X-Accel-Buffering": "no"})


async def start(sandbox: E2bSandbox, request: Request) -> Response:
    spec = _spec(await read_envelope(request), _deadline(request))
    process, reader = await sandbox.processes.start(spec)
    return streaming(_events(sandbox, process, reader, keepalive_of(request)))


async def connect(sandbox: E2bSandbox, request: Request) -> Response:
    process = sandbox.processes.find(section(await read_envelope(request), "process"))
    return streaming(_events(sandbox, process, process.add_reader(), keepalive_of(request)))


async def list_processes(sandbox: E2bSandbox, request: Request) -> Response:
    processes = [
        {"config": each.spec.config, "pid": each.pid, **({"tag": each.spec.tag} if each.spec.tag else {})}
        for each in sandbox.processes.list()
    ]
    return JSONResponse({"processes": processes})


async def update(sandbox: E2bSandbox, request: Request) -> Response:
    message = await read_json(request)
    process = sandbox.processes.find(section(message, "process"))
    size = section(section(message, "pty"), "size")
    if process.spec.terminal is None:
        raise UsageError("the process has no terminal")
    await process.resize(field(size, "cols", int), field(size, "rows", int))
    return JSONResponse({})


async def send_input(sandbox: E2bSandbox, request: Request) -> Response:
    message = await read_json(request)
    await _write(sandbox.processes.find(section(message, "process")), section(message, "input"))
    return JSONResponse({})


async def stream_input(sandbox: E2bSandbox, request: Request) -> Response:
    """Many messages in: the first names the process, the others have its input. One answer, when all is written."""
    process: Process | None = None
    async with aclosing(messages_of(request, GIB, _STREAM_INPUT_SECONDS)) as messages:
        async for event in messages:
            if "start" in event:
                process = sandbox.processes.find(section(section(event, "start"), "process"))
            elif "data" in event and process is not None:
                await _write(process, section(section(event, "data"), "input"))
    return Response(envelope({}) + end_of_stream(), media_type=MEDIA_TYPE)


async def close_stdin(sandbox: E2bSandbox, request: Request) -> Response:
    await sandbox.processes.find(section(await read_json(request), "process")).close_stdin()
    return JSONResponse({})


async def send_signal(sandbox: E2bSandbox, request: Request) -> Response:
    message = await read_json(request)
    await sandbox.processes.find(section(message, "process")).send_signal(message.get("signal"))
    return JSONResponse({})


async def _write(process: Process, data: Mapping[str, Any]) -> None:
    name = "pty" if "pty" in data else "stdin"
    if name == "pty" and process.spec.terminal is None:
        raise UsageError("the process has no terminal; write to its stdin")
    if name == "stdin" and not process.spec.takes_input:
        raise UsageError("the process was started without stdin; start it with stdin=True")
    await process.write(decoded(data, name))


def _spec(message: Mapping[str, Any], seconds: float | None) -> ProcessSpec:
    config, pty = section(message, "process"), message.get("pty")
    size = section(section(message, "pty"), "size")
    tag = field(message, "tag", str, "")
    return ProcessSpec(
        command=field(config, "cmd", str),
        arguments=words(config, "args"),
        variables=texts(config, "envs"),
        cwd=field(config, "cwd", str, ""),
        tag=tag or None,
        terminal=None if pty is None else (field(size, "cols", int, 80), field(size, "rows", int, 24)),
        takes_input=field(message, "stdin", bool, True),
        seconds=seconds,
    )


def _deadline(request: Request) -> float | None:
    """In Connect's words, milliseconds. The process ends then, not only the stream."""
    text = request.headers.get("connect-timeout-ms", "")
    return int(text) / 1000 if text.isascii() and text.isdigit() and len(text) <= 10 and int(text) else None


def keepalive_of(request: Request) -> float:
    text = request.headers.get("keepalive-ping-interval", "")
    if text.isascii() and text.isdigit() and len(text) <= 6:
        return max(float(text), _SHORTEST_KEEPALIVE)
    return _KEEPALIVE_SECONDS


async def _events(
    sandbox: E2bSandbox, process: Process, reader: Reader, keepalive_seconds: float
) -> AsyncGenerator[bytes, None]:
    output = "pty" if process.spec.terminal else "stdout"
    with sandbox.in_use():
        try:
            yield envelope({"event": {"start": {"pid": process.pid}}})
            while True:
                event = None
                with suppress(TimeoutError):
                    async with asyncio.timeout(keepalive_seconds):
                        event = await reader.next()
                match event:
                    case None:
                        yield envelope({"event": {"keepalive": {}}})
                    case Stdout(data):
                        yield _data(output, data)
                    case Stderr(data):
                        yield _data("stderr", data)
                    case Finished(result):
                        for frame in _end(result):
                            yield frame
                        return
                    case CallFailure():
                        yield end_of_stream(event)
                        return
                    case _:
                        pass
        finally:
            process.remove_reader(reader)


def _data(stream: str, data: bytes) -> bytes:
    return envelope({"event": {"data": {stream: b64encode(data).decode()}}})


def _end(result: RunResult) -> list[bytes]:
    if result.status is Status.TIMEOUT:
        return [end_of_stream(CallFailure("deadline_exceeded", 504, result.detail or "the process ran for too long"))]
    return [envelope({"event": {"end": _outcome(result)}}), end_of_stream()]


def _outcome(result: RunResult) -> dict[str, Any]:
    """As Go reports it: -1 for a process that a signal ended."""
    if result.signal is None:
        outcome = {"exitCode": result.exit_code, "exited": True, "status": f"exit status {result.exit_code}"}
        reason = result.detail if result.status is not Status.SUCCESS else ""
        return outcome | ({"error": reason or outcome["status"]} if result.exit_code or reason else {})
    status = f"signal: {result.signal}"
    return {"exitCode": -1, "exited": False, "status": status, "error": result.detail or status}
