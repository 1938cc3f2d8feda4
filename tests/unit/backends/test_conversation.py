"""The host's end of a conversation: large messages, slow readers, and ends."""

from __future__ import annotations

import os
import socket
import threading

import anyio
import pytest

from fumehood.backends.conversation import SocketConversation
from fumehood.errors import SandboxError
from fumehood.guest.contract import frames

pytestmark = pytest.mark.anyio


async def test_messages_of_any_size_go_there_and_back() -> None:
    ours, theirs = socket.socketpair()
    echo = threading.Thread(target=answer_all, args=(theirs,))
    echo.start()
    conversation = SocketConversation(ours)
    for size in (0, 1, 2**16, 2**20):
        body = os.urandom(size)
        await conversation.send({"size": size}, memoryview(body))
        assert await conversation.receive() == ({"size": size}, body)
    conversation.close()
    echo.join()


def answer_all(stream: socket.socket) -> None:
    conversation = frames.FrameSocket(stream)
    with stream:
        while (message := conversation.receive()) is not None:
            conversation.send(*message)


async def test_a_slow_reader_slows_the_sender_and_nobody_else() -> None:
    ours, theirs = socket.socketpair()
    conversation = SocketConversation(ours)
    with theirs, anyio.move_on_after(0.05) as scope:
        for _ in range(1000):
            await conversation.send({}, bytes(2**20))
    assert scope.cancelled_caught
    conversation.close()


async def test_an_end_that_is_gone_is_an_error_of_the_machinery() -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    conversation = SocketConversation(ours)
    with pytest.raises(SandboxError, match="file service is gone"):
        await conversation.receive()
    assert conversation.is_abandoned
    with pytest.raises(SandboxError, match="is gone"):
        await conversation.send({})


async def test_half_a_message_is_no_message() -> None:
    ours, theirs = socket.socketpair()
    theirs.sendall(frames.encode({"a": 1}, b"body")[:-1])
    theirs.close()
    with pytest.raises(SandboxError, match="is gone"):
        await SocketConversation(ours).receive()


async def test_a_service_that_does_not_answer_is_given_up() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        conversation = SocketConversation(ours, patience_seconds=0.05)
        theirs.send(b"\0")
        with pytest.raises(SandboxError, match="did not answer in 50ms"):
            await conversation.receive()
        assert conversation.is_silent


async def test_a_service_that_does_not_read_is_given_up() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        conversation = SocketConversation(ours, patience_seconds=0.05)
        with pytest.raises(SandboxError, match="did not answer"):
            await conversation.send({}, bytes(10_000_000))
        assert conversation.is_abandoned
