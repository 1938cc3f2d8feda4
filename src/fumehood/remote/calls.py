"""The client's side of a call: one conversation, from the question to the last answer."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

from fumehood.errors import SandboxError
from fumehood.events import Event, Finished, Stderr, Stdout
from fumehood.guest.contract.frames import FrameError, Header
from fumehood.remote.conversations import Conversation, Conversations, Message
from fumehood.remote.failures import unpack_failure
from fumehood.remote.link import LinkClosedError
from fumehood.remote.options import pack_request
from fumehood.remote.values import unpack_display, unpack_result
from fumehood.results import RunResult
from fumehood.sandbox.request import RunOptions


class LostError(SandboxError):
    """The sandbox, its server or the way to it is gone for good. Whether a run that was under way had an effect is not
    known; it is not done again.
    """


@asynccontextmanager
async def call(conversations: Conversations, header: Header, body: bytes = b"") -> AsyncIterator[Conversation]:
    """Leaving the block before the last answer makes the other end stop."""
    conversation: Conversation | None = None
    try:
        conversation = await conversations.begin(header, body)
        conversation.end()
        yield conversation
    except LinkClosedError as error:
        raise LostError(f"the connection to the sandbox is lost: {error}") from error
    finally:
        if conversation is not None:
            conversation.abandon()


async def next_answer(conversation: Conversation) -> Message | None:
    message = await conversation.receive()
    if message is not None and "failed" in message.header:
        raise unpack_failure(message.header["failed"])
    return message


async def ask(conversations: Conversations, header: Header, body: bytes = b"") -> Message:
    """A call with one answer."""
    async with call(conversations, header, body) as conversation:
        message = await next_answer(conversation)
        if message is None:
            raise FrameError("the server ended a call without an answer")
        return message


async def ask_for_result(conversations: Conversations, header: Header, body: bytes = b"") -> RunResult | None:
    message = await ask(conversations, header, body)
    result = message.header.get("result")
    return None if result is None else unpack_result(result, message.body)


async def run(conversations: Conversations, do: Header, code: str | bytes | None, options: RunOptions) -> RunResult:
    request, body = pack_request(code, options)
    result = await ask_for_result(conversations, do | request, body)
    assert result is not None
    return result


async def events(conversations: Conversations, header: Header, body: bytes = b"") -> AsyncGenerator[Event, None]:
    async with call(conversations, header, body) as conversation:
        while (message := await next_answer(conversation)) is not None:
            yield _event(message)


def _event(message: Message) -> Event:
    header, body = message
    if "stdout" in header:
        return Stdout(body)
    if "stderr" in header:
        return Stderr(body)
    if "display" in header:
        return unpack_display(header["display"], body)
    return Finished(unpack_result(header["result"], body))
