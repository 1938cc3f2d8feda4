"""The client's side of a call: one conversation, from the question to the last answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, contextmanager

import anyio

from fumehood.backends.outcome import LOST_EXIT_CODE
from fumehood.errors import LostError
from fumehood.events import Event, Finished, Stderr, Stdout
from fumehood.guest.contract.frames import Header
from fumehood.remote.assembly import ConversationMessage
from fumehood.remote.conversations import Conversations, RemoteConversation
from fumehood.remote.failures import unpack_failure
from fumehood.remote.feed import send_input
from fumehood.remote.link import LinkClosedError
from fumehood.remote.options import pack_request
from fumehood.remote.values import unpack_display, unpack_result
from fumehood.results import Cause, RunResult, Status
from fumehood.sandbox.request import RunOptions


@contextmanager
def named_loss() -> Iterator[None]:
    try:
        yield
    except LinkClosedError as error:
        raise LostError(f"the connection to the sandbox is lost: {error}") from error


@asynccontextmanager
async def begin(
    conversations: Conversations, header: Header, body: bytes = b"", *, is_last: bool = False
) -> AsyncIterator[RemoteConversation]:
    """Leaving the block before the last answer makes the other end stop; when it is left, it has."""
    conversation: RemoteConversation | None = None
    try:
        with named_loss():
            conversation = await conversations.begin(header, body, is_last=is_last)
            yield conversation
    finally:
        if conversation is not None and not conversation.is_over:
            conversation.abandon()
            with anyio.CancelScope(shield=True):
                await conversation.wait_until_gone()


def call(
    conversations: Conversations, header: Header, body: bytes = b""
) -> AbstractAsyncContextManager[RemoteConversation]:
    """Likewise, with nothing to say but the question."""
    return begin(conversations, header, body, is_last=True)


async def next_answer(conversation: RemoteConversation) -> ConversationMessage | None:
    message = await conversation.receive()
    if message is not None and "failed" in message.header:
        raise unpack_failure(message.header["failed"])
    return message


async def expect_answer(conversation: RemoteConversation) -> ConversationMessage:
    message = await next_answer(conversation)
    if message is None:
        raise LostError("the server ended a call without an answer; is the sandbox closed?")
    return message


async def ask(conversations: Conversations, header: Header, body: bytes = b"") -> ConversationMessage:
    """A call with one answer."""
    async with call(conversations, header, body) as conversation:
        return await expect_answer(conversation)


async def ask_for_result(conversations: Conversations, header: Header, body: bytes = b"") -> RunResult | None:
    message = await ask(conversations, header, body)
    result = message.header.get("result")
    return None if result is None else unpack_result(result, message.body)


async def run(conversations: Conversations, do: Header, code: str | bytes | None, options: RunOptions) -> RunResult:
    """A connection that is lost once it is asked for is its end, as far as is known."""
    async with _asked_to_run(conversations, do, code, options) as conversation:
        return await _wait_for_result(conversation)


def _asked_to_run(
    conversations: Conversations, do: Header, code: str | bytes | None, options: RunOptions
) -> AbstractAsyncContextManager[RemoteConversation]:
    """The conversation of a run, to which its input follows if that is a descriptor."""
    request, body = pack_request(code, options)
    stdin = options.get("stdin")
    if not isinstance(stdin, int):
        return call(conversations, do | request, body)
    return _fed(conversations, do | request, body, stdin)


@asynccontextmanager
async def _fed(
    conversations: Conversations, header: Header, body: bytes, stdin: int
) -> AsyncIterator[RemoteConversation]:
    async with begin(conversations, header, body) as conversation:
        feeding = asyncio.ensure_future(send_input(conversation, stdin))
        try:
            yield conversation
        finally:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)


async def wait_for_result(conversations: Conversations, header: Header) -> RunResult:
    """Of a run that is under way."""
    async with call(conversations, header) as conversation:
        return await _wait_for_result(conversation)


async def _wait_for_result(conversation: RemoteConversation) -> RunResult:
    try:
        message = await next_answer(conversation)
    except LinkClosedError as error:
        return lost_result(error)
    if message is None:
        return lost_result(LostError("the sandbox was closed while the run was under way"))
    return unpack_result(message.header.get("result", {}), message.body)


def lost_result(error: BaseException) -> RunResult:
    return RunResult(
        status=Status.ERROR,
        cause=Cause.LOST,
        exit_code=LOST_EXIT_CODE,
        stdout_bytes=b"",
        stderr_bytes=b"",
        truncated=True,
        duration_ms=0,
        cpu_ms=0,
        peak_memory_bytes=0,
        run_id="",
        policy_digest="",
        detail=f"{error}; what the run had done by then is not known, and it is not done again",
    )


async def stream_run(
    conversations: Conversations, do: Header, code: str | bytes | None, options: RunOptions
) -> AsyncGenerator[Event, None]:
    asked = _asked_to_run(conversations, do, code, options)
    async with asked as conversation, aclosing(_events(conversation)) as events:
        async for event in events:
            yield event


async def stream(conversations: Conversations, header: Header) -> AsyncGenerator[Event, None]:
    """Events of a run that is under way."""
    async with call(conversations, header) as conversation, aclosing(_events(conversation)) as events:
        async for event in events:
            yield event


async def _events(conversation: RemoteConversation) -> AsyncGenerator[Event, None]:
    while True:
        try:
            message = await next_answer(conversation)
        except LinkClosedError as error:
            yield Finished(lost_result(error))
            return
        if message is None:
            return
        yield _event(message)


def _event(message: ConversationMessage) -> Event:
    header, body = message
    if "stdout" in header:
        return Stdout(body)
    if "stderr" in header:
        return Stderr(body)
    if "display" in header:
        return unpack_display(header["display"], body)
    return Finished(unpack_result(header.get("result", {}), body))
