"""The half that has the sandbox: what a client asks for in conversations is done with it.

Each call is one conversation. It is done with the sandbox's own methods, so everything that holds for a local caller
holds here: the policy, the gateway, the audit log, limits. A client that is gone ends what it had under way.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from itertools import count
from typing import Any, TypeVar

from fumehood.errors import FumehoodError, UsageError
from fumehood.events import Event, Finished, Stderr, Stdout
from fumehood.guest.contract.frames import FrameError, Header
from fumehood.remote.conversations import Conversation, Conversations, Message
from fumehood.remote.failures import pack_failure
from fumehood.remote.link import LinkClosedError
from fumehood.remote.options import unpack_request
from fumehood.remote.values import pack_display, pack_entry, pack_result
from fumehood.results import Display, RunResult
from fumehood.sandbox.async_sandbox import AsyncSandbox
from fumehood.sandbox.background import AsyncBackgroundRun
from fumehood.sandbox.session import AsyncSession

T = TypeVar("T")
_Handler = Callable[["SandboxService", Conversation, Message], Awaitable[None]]
_HANDLERS: dict[str, _Handler] = {}
_MOST_PARTS = 128


def _answers(name: str) -> Callable[[_Handler], _Handler]:
    def register(handler: _Handler) -> _Handler:
        _HANDLERS[name] = handler
        return handler

    return register


class SandboxService:
    """Serves one open sandbox to one client."""

    def __init__(self, box: AsyncSandbox) -> None:
        self.box = box
        self.conversations = Conversations(self._begun, is_client=False)
        self.runs: dict[int, AsyncBackgroundRun] = {}
        self.sessions: dict[int, AsyncSession] = {}
        self._numbers = count(1)
        self._tasks: set[asyncio.Task[None]] = set()
        self._last_call = time.monotonic()

    def is_idle_for(self, seconds: float) -> bool:
        """Whether no call is under way, and none has ended in this time."""
        return not self._tasks and time.monotonic() - self._last_call >= seconds

    def number(self, table: dict[int, T], part: T) -> int:
        if len(table) >= _MOST_PARTS:
            raise UsageError(f"more than {_MOST_PARTS} at once; end some of them")
        number = next(self._numbers)
        table[number] = part
        return number

    async def close(self) -> None:
        """Ends all that is under way for the client; the sandbox itself is closed by whom it belongs to."""
        self.conversations.lose(LinkClosedError("the sandbox is closed"))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begun(self, conversation: Conversation) -> None:
        task = asyncio.ensure_future(self._serve(conversation))
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._last_call = time.monotonic()

    async def _serve(self, conversation: Conversation) -> None:
        call = asyncio.ensure_future(self._answer(conversation))
        loss = asyncio.ensure_future(conversation.wait_for_loss())
        try:
            await asyncio.wait([call, loss], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (call, loss):
                task.cancel()
            await asyncio.gather(call, loss, return_exceptions=True)

    async def _answer(self, conversation: Conversation) -> None:
        message = await conversation.receive()
        if message is None:
            return
        try:
            handler = _HANDLERS.get(str(message.header.get("do")))
            if handler is None:
                raise UsageError(f"the server does not know {message.header.get('do')!r}; is it older than the client?")
            await handler(self, conversation, message)
        except (LinkClosedError, asyncio.CancelledError):
            raise
        except FrameError as error:
            await conversation.send({"failed": pack_failure(UsageError(str(error)))})
        except Exception as error:
            await conversation.send({"failed": pack_failure(error)})
            if not isinstance(error, FumehoodError):
                raise
        finally:
            conversation.end()


async def _send_result(conversation: Conversation, result: RunResult | None) -> None:
    if result is None:
        await conversation.send({"result": None})
        return
    header, body = pack_result(result)
    await conversation.send({"result": header}, body)


async def _send_events(conversation: Conversation, events: AsyncGenerator[Event, None]) -> None:
    async with aclosing(events):
        async for event in events:
            await _send_event(conversation, event)


async def _send_event(conversation: Conversation, event: Event) -> None:
    match event:
        case Stdout(data):
            await conversation.send({"stdout": True}, data)
        case Stderr(data):
            await conversation.send({"stderr": True}, data)
        case Display():
            header, body = pack_display(event)
            await conversation.send({"display": header}, body)
        case Finished(result):
            await _send_result(conversation, result)


# The sandbox.


@_answers("run")
async def _run(service: SandboxService, conversation: Conversation, message: Message) -> None:
    code, options = unpack_request(*message)
    await _send_result(conversation, await service.box.run(code, **options))


@_answers("stream")
async def _stream(service: SandboxService, conversation: Conversation, message: Message) -> None:
    code, options = unpack_request(*message)
    await _send_events(conversation, service.box.stream(code, **options))


@_answers("send_signal")
async def _send_signal(service: SandboxService, conversation: Conversation, message: Message) -> None:
    await service.box.send_signal(_number(message.header, "signal"))
    await conversation.send({})


# Runs in the background.


@_answers("start")
async def _start(service: SandboxService, conversation: Conversation, message: Message) -> None:
    code, options = unpack_request(*message)
    columns, rows = message.header.get("terminal") or (None, None)
    terminal = None if columns is None else (columns, rows)
    run = await service.box.start(code, terminal=terminal, **options)
    await conversation.send({"started": service.number(service.runs, run)})


def _run_of(service: SandboxService, header: Header) -> AsyncBackgroundRun:
    return _part(service.runs, header, "run in the background")


@_answers("background.poll")
async def _poll(service: SandboxService, conversation: Conversation, message: Message) -> None:
    await _send_result(conversation, await _run_of(service, message.header).poll())


@_answers("background.read")
async def _read(service: SandboxService, conversation: Conversation, message: Message) -> None:
    output = await _run_of(service, message.header).read(wait=message.header.get("wait") or 0)
    await conversation.send({"stdout": len(output.stdout)}, output.stdout + output.stderr)


@_answers("background.stream")
async def _stream_run(service: SandboxService, conversation: Conversation, message: Message) -> None:
    await _send_events(conversation, _run_of(service, message.header).stream())


@_answers("background.wait")
async def _wait(service: SandboxService, conversation: Conversation, message: Message) -> None:
    await _send_result(conversation, await _run_of(service, message.header).wait())


@_answers("background.write")
async def _write(service: SandboxService, conversation: Conversation, message: Message) -> None:
    await _run_of(service, message.header).write(message.body)
    await conversation.send({})


@_answers("background.close_stdin")
async def _close_stdin(service: SandboxService, conversation: Conversation, message: Message) -> None:
    await _run_of(service, message.header).close_stdin()
    await conversation.send({})


@_answers("background.send_signal")
async def _signal_run(service: SandboxService, conversation: Conversation, message: Message) -> None:
    await _run_of(service, message.header).send_signal(_number(message.header, "signal"))
    await conversation.send({})


@_answers("background.resize")
async def _resize(service: SandboxService, conversation: Conversation, message: Message) -> None:
    run = _run_of(service, message.header)
    await run.resize(_number(message.header, "columns"), _number(message.header, "rows"))
    await conversation.send({})


@_answers("background.kill")
async def _kill(service: SandboxService, conversation: Conversation, message: Message) -> None:
    await _send_result(conversation, await _run_of(service, message.header).kill())


# Sessions.


@_answers("session.open")
async def _open_session(service: SandboxService, conversation: Conversation, message: Message) -> None:
    session = service.box.session()
    number = service.number(service.sessions, session)
    await session.__aenter__()
    await conversation.send({"opened": number})


def _session_of(service: SandboxService, header: Header) -> AsyncSession:
    return _part(service.sessions, header, "session")


@_answers("session.run")
async def _run_in_session(service: SandboxService, conversation: Conversation, message: Message) -> None:
    code, options = unpack_request(*message)
    await _send_result(conversation, await _session_of(service, message.header).run(code or b"", **options))


@_answers("session.stream")
async def _stream_in_session(service: SandboxService, conversation: Conversation, message: Message) -> None:
    code, options = unpack_request(*message)
    await _send_events(conversation, _session_of(service, message.header).stream(code or b"", **options))


@_answers("session.interrupt")
async def _interrupt(service: SandboxService, conversation: Conversation, message: Message) -> None:
    await _session_of(service, message.header).interrupt()
    await conversation.send({})


@_answers("session.restart")
async def _restart(service: SandboxService, conversation: Conversation, message: Message) -> None:
    await _session_of(service, message.header).restart()
    await conversation.send({})


@_answers("session.close")
async def _close_session(service: SandboxService, conversation: Conversation, message: Message) -> None:
    await _session_of(service, message.header).close()
    del service.sessions[message.header["part"]]
    await conversation.send({})


# Files.


@_answers("files.write")
async def _write_file(service: SandboxService, conversation: Conversation, message: Message) -> None:
    header = message.header
    await service.box.files.write(
        _text(header, "path"),
        message.body,
        executable=bool(header.get("executable")),
        as_program=bool(header.get("as_program")),
    )
    await conversation.send({})


@_answers("files.read")
async def _read_file(service: SandboxService, conversation: Conversation, message: Message) -> None:
    header = message.header
    data = await service.box.files.read(_text(header, "path"), max_bytes=_number(header, "max_bytes"))
    await conversation.send({}, data)


@_answers("files.list")
async def _list_files(service: SandboxService, conversation: Conversation, message: Message) -> None:
    for entry in await service.box.files.list(_text(message.header, "path")):
        await conversation.send({"entry": pack_entry(entry)})


@_answers("files.outputs")
async def _outputs(service: SandboxService, conversation: Conversation, message: Message) -> None:
    for path, entry in (await service.box.files.outputs()).items():
        await conversation.send({"path": path, "entry": pack_entry(entry)})


@_answers("files.stat")
async def _stat(service: SandboxService, conversation: Conversation, message: Message) -> None:
    header = message.header
    entry = await service.box.files.stat(_text(header, "path"), follow=bool(header.get("follow")))
    await conversation.send({"entry": pack_entry(entry)})


@_answers("files.remove")
async def _remove(service: SandboxService, conversation: Conversation, message: Message) -> None:
    header = message.header
    await service.box.files.remove(_text(header, "path"), recursive=bool(header.get("recursive")))
    await conversation.send({})


@_answers("files.mkdir")
async def _mkdir(service: SandboxService, conversation: Conversation, message: Message) -> None:
    header = message.header
    await service.box.files.mkdir(_text(header, "path"), parents=bool(header.get("parents")))
    await conversation.send({})


def _part(table: dict[int, T], header: Header, what: str) -> T:
    found = table.get(_number(header, "part"))
    if found is None:
        raise UsageError(f"there is no such {what}")
    return found


def _number(header: Header, name: str) -> int:
    value: Any = header.get(name)
    if type(value) is not int:
        raise FrameError(f"{name} is not a number")
    return value


def _text(header: Header, name: str) -> str:
    value: Any = header.get(name)
    if not isinstance(value, str):
        raise FrameError(f"{name} is not text")
    return value
