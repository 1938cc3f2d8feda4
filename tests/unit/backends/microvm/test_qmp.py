"""QEMU's control socket with somebody else at its other end: whoever broke out of a machine, or nobody any more."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest

from fumehood.backends.microvm import qmp
from fumehood.backends.microvm.qmp import ControlChannel
from fumehood.errors import StepFailedError

pytestmark = pytest.mark.anyio

DEEP = b"[" * 100_000 + b"]" * 100_000
ANSWERS = {
    "nothing": b"\n",
    "no JSON": b"{\n",
    "no object": b"5\n",
    "a list": b'["return"]\n',
    "a text": b'"return"\n',
    "nested deeply": DEEP + b"\n",
    "an error nested deeply": b'{"error": ' + DEEP + b"}\n",
    "no text": b"\xff\xfe\n",
    "an error that is a text": b'{"error": "x"}\n',
    "an error without a reason": b'{"error": {"desc": null}}\n',
    "a line without an end": b"x" * (2 * 1024 * 1024),
}


@pytest.fixture
def ends() -> Iterator[tuple[ControlChannel, socket.socket]]:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    channel = ControlChannel(ours)
    try:
        yield channel, theirs
    finally:
        channel.close()
        theirs.close()


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS.keys())
async def test_an_answer_that_is_none_is_one_error(ends: tuple[ControlChannel, socket.socket], answer: bytes) -> None:
    channel, theirs = ends
    sending = asyncio.ensure_future(asyncio.get_running_loop().sock_sendall(theirs, answer))
    with pytest.raises(StepFailedError, match=r"^controlling a machine"):
        await channel.call("stop")
    sending.cancel()


@pytest.mark.parametrize("state", [b'"completed"', b"5", b"[]"])
async def test_a_state_of_a_migration_that_is_none_is_one_error(
    ends: tuple[ControlChannel, socket.socket], state: bytes
) -> None:
    channel, theirs = ends
    theirs.send(b'{"return": {}}\n{"return": ' + state + b"}\n")
    with pytest.raises(StepFailedError, match="does not keep to its protocol"):
        await channel.migrate("migrate", "fd:state")


@pytest.mark.parametrize("way", ["call", "call_soon", "hand_over"])
async def test_a_qemu_that_has_ended_is_one_error(ends: tuple[ControlChannel, socket.socket], way: str) -> None:
    channel, theirs = ends
    theirs.close()
    with pytest.raises(StepFailedError, match="QEMU has ended"):
        await (channel.hand_over("state", 0) if way == "hand_over" else getattr(channel, way)("cont"))


async def test_events_without_end_hold_up_no_deadline(
    ends: tuple[ControlChannel, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, theirs = ends
    monkeypatch.setattr(qmp, "_SOON_SECONDS", 0.2)

    async def speak() -> None:
        while True:
            await asyncio.get_running_loop().sock_sendall(theirs, b'{"event": "x"}\n' * 1000)

    speaking = asyncio.ensure_future(speak())
    with pytest.raises(StepFailedError, match="does not answer"):
        await channel.call_soon("stop")
    speaking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await speaking
