"""The protocol under a remote sandbox: each message arrives once and in order, whatever happens to connections."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress

import pytest
from carriers import MemoryCarrier, pair

from fumehood.errors import DeniedError, LostError
from fumehood.guest.contract import frames
from fumehood.guest.contract.frames import FrameError, Header
from fumehood.remote.assembly import ConversationMessage, Limits
from fumehood.remote.conversations import WINDOW_BYTES, Conversations, RemoteConversation
from fumehood.remote.failures import unpack_failure
from fumehood.remote.link import Link, LinkClosedError
from fumehood.remote.values import pack_result, unpack_result
from fumehood.results import Cause, RunResult, Status

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def connected(client: Conversations, server: Conversations) -> AsyncIterator[tuple[MemoryCarrier, MemoryCarrier]]:
    carriers = pair()
    tasks = [
        asyncio.ensure_future(end.link.use(carrier, 0)) for end, carrier in zip((client, server), carriers, strict=True)
    ]
    try:
        yield carriers
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("seed", range(5))
async def test_each_message_arrives_once_and_in_order_over_carriers_that_break(seed: int) -> None:
    chance = random.Random(seed)
    got: dict[str, list[int]] = {"left": [], "right": []}
    left = Link(lambda header, body, size: got["left"].append(header["value"]))
    right = Link(lambda header, body, size: got["right"].append(header["value"]))
    for value in range(500):
        left.post({"value": value}, bytes(chance.randrange(2000)))
        right.post({"value": value})
    for _ in range(1000):
        if len(got["left"]) == len(got["right"]) == 500:
            break
        one, other = pair(chance.randrange(1, 60), chance.randrange(1, 60))
        received = left.received, right.received
        uses = [left.use(one, received[1]), right.use(other, received[0])]
        with suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                await asyncio.gather(*uses)
    assert got == {"left": list(range(500)), "right": list(range(500))}


@pytest.mark.parametrize("received", [7, -1])
async def test_an_end_that_claims_what_cannot_be_is_refused(received: int) -> None:
    link = Link(lambda header, body, size: None)
    link.post({"value": 1})
    with pytest.raises(FrameError, match="cannot be"):
        await link.use(pair()[0], received)


@pytest.mark.parametrize("message", [{"n": 2, "c": 1}, {"n": "1"}, {"received": 5}, {"received": None}, {}])
async def test_a_peer_that_lies_about_numbers_is_refused(message: Header) -> None:
    link = Link(lambda header, body, size: None)
    ours, theirs = pair()
    await theirs.send(frames.encode(message))
    with pytest.raises(FrameError):
        await link.use(ours, 0)


async def test_a_slow_reader_of_one_conversation_holds_up_that_one_alone() -> None:
    begun: list[RemoteConversation] = []
    server = Conversations(begun.append, is_client=False)
    client = Conversations(lambda conversation: None, is_client=True)
    async with connected(client, server):
        slow, quick = await client.begin({"do": "slow"}), await client.begin({"do": "quick"})
        sending = asyncio.ensure_future(_send_many(slow, 20))
        flooding = asyncio.ensure_future(_send_many(quick, 50))
        await _until(lambda: len(begun) == 2)
        for _ in range(51):
            assert await begun[1].receive() is not None
        await flooding
        assert not sending.done()
        for _ in range(21):
            assert await begun[0].receive() is not None
        await sending


async def _send_many(conversation: RemoteConversation, count: int) -> None:
    for _ in range(count):
        await conversation.send({}, bytes(WINDOW_BYTES // 8))


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("messages", "match"),
    [
        ([({"c": 1, "say": {}}, 60_000)] * 20, "window"),
        ([({"c": number, "say": {}}, 0) for number in range(1, 40, 2)], "conversations at once"),
        ([({"c": 1, "part": True}, 60_000)] * 4, "larger than"),
        ([({"say": {}}, 0)], "no conversation"),
        ([({"c": 1, "say": []}, 0)], "without a header"),
        ([({"c": 1, "say": {}}, 0), ({"c": 1, "end": True}, 0), ({"c": 1, "say": {}}, 0)], "after the end"),
        ([({"c": 1, "say": {}}, 0), ({"c": 1, "credit": -5}, 0)], "credit"),
    ],
    ids=["window", "conversations", "message", "none", "header", "end", "credit"],
)
async def test_a_peer_that_takes_more_than_its_share_is_cut_off(messages: list[tuple[Header, int]], match: str) -> None:
    server = Conversations(lambda conversation: None, is_client=False, limits=Limits(8, 150_000, 200_000))
    ours, theirs = pair()

    async def flood() -> None:
        with suppress(Exception):
            for number, (header, size) in enumerate(messages, 1):
                await theirs.send(frames.encode({**header, "n": number}, bytes(size)))

    sending = asyncio.ensure_future(flood())
    with pytest.raises(FrameError, match=match):
        await server.link.use(ours, 0)
    sending.cancel()


async def test_what_was_under_way_when_the_other_end_is_lost_ends_with_its_error() -> None:
    client = Conversations(lambda conversation: None, is_client=True)
    server = Conversations(lambda conversation: None, is_client=False)
    async with connected(client, server):
        conversation = await client.begin({"do": "wait"})
        waiting = asyncio.ensure_future(conversation.receive())
        await asyncio.sleep(0)
        client.lose(LinkClosedError("gone"))
        with pytest.raises(LinkClosedError, match="gone"):
            await waiting
        with pytest.raises(LinkClosedError):
            await client.begin({"do": "more"})


@pytest.mark.parametrize("is_begun", [True, False])
async def test_who_leaves_a_conversation_waits_until_the_other_end_has_stopped(is_begun: bool) -> None:
    """Also one whose first message was not whole yet, for which nothing was done."""
    begun: list[RemoteConversation] = []
    server = Conversations(begun.append, is_client=False)
    client = Conversations(lambda conversation: None, is_client=True)
    async with connected(client, server):
        if is_begun:
            conversation = await client.begin({"do": "work"})
            await _until(lambda: bool(begun))
            conversation.abandon()
            leaving = asyncio.ensure_future(conversation.wait_until_gone())
            await _until(lambda: begun[0].is_over)
            assert not leaving.done()
            begun[0].finish()
        else:
            beginning = asyncio.ensure_future(client.begin({"do": "work"}, bytes(100 * WINDOW_BYTES)))
            await _until(lambda: client._next > 1)
            conversation = client._open[1]
            beginning.cancel()
            leaving = asyncio.ensure_future(conversation.wait_until_gone())
        await leaving
        assert not client._open
        assert not server._open


async def test_a_failure_brings_its_details_and_nothing_that_changes_an_exception() -> None:
    details = {"quota": "runs", "__class__": "x", "_private": 1, "args": [1], "with_traceback": "x", "not a name": 1}
    error = unpack_failure({"kind": "DeniedError", "text": "no", "details": details})
    assert (type(error), str(error), vars(error)) == (DeniedError, "no", {"quota": "runs"})


@pytest.mark.parametrize(
    "lie",
    [
        *({"cpu_ms": value} for value in (math.nan, math.inf, -1.0, 10**400, "1", None)),
        {"peak_memory_bytes": 2**64},
        {"exit_code": 10**400},
        {"detail": None},
        {"truncated": "yes"},
    ],
)
async def test_a_result_with_values_that_cannot_be_is_none(lie: Header) -> None:
    """Whoever has it adds up what was used, and shows texts."""
    result = RunResult(Status.SUCCESS, Cause.EXIT, 0, b"a", b"", False, 1.5, 0, 4096, "run", "digest")
    header, body = pack_result(result)
    assert unpack_result(header, body) == result
    with pytest.raises(LostError, match="not complete"):
        unpack_result(header | lie, body)


_LARGE = [({"c": 1, "part": True}, 60_000), ({"c": 1, "part": True}, 60_000), ({"c": 1, "say": {}}, 0)]
_MANY = 40_000


@pytest.mark.parametrize(
    ("messages", "match"),
    [
        ([({"c": 1, "say": {}}, 0), *_LARGE * 40], "window"),
        ([({"c": 1, "say": {"a": "x" * 200_000}}, 0)] * 40, "headers"),
        ([({"c": number, "abandon": True}, 0) for number in range(1, 2 * _MANY, 2)], "confirms none"),
    ],
    ids=["large messages", "headers", "answers"],
)
async def test_what_is_not_received_or_confirmed_is_bounded(messages: list[tuple[Header, int]], match: str) -> None:
    """The receiver of a call that takes no more messages, and a peer that reads nothing."""
    server = Conversations(lambda conversation: None, is_client=False, limits=Limits(8, 150_000, 1_000_000))
    ours = FloodingCarrier(
        frames.encode({**header, "n": n}, bytes(size)) for n, (header, size) in enumerate(messages, 1)
    )
    with pytest.raises(FrameError, match=match):
        await server.link.use(ours, 0)


class FloodingCarrier:
    """The end of one who sends and never reads."""

    def __init__(self, messages: Iterator[bytes]) -> None:
        self._messages = messages

    async def receive(self) -> bytes:
        await asyncio.sleep(0)
        return next(self._messages)

    async def send(self, data: bytes) -> None:
        await asyncio.Event().wait()

    async def close(self) -> None: ...


async def test_large_messages_wait_until_others_are_done_with() -> None:
    begun: list[RemoteConversation] = []
    server = Conversations(begun.append, is_client=False, limits=Limits(8, 2_000_000, 2_500_000))
    client = Conversations(lambda conversation: None, is_client=True)
    async with connected(client, server):
        first = await client.begin({}, bytes(1_800_000))
        assert len((await _received(begun, 0)).body) == 1_800_000
        second = asyncio.ensure_future(client.begin({}, bytes(1_800_000)))
        for _ in range(500):
            await asyncio.sleep(0)
        assert not second.done()
        first.end()
        begun[0].end()
        await second
        assert len((await _received(begun, 1)).body) == 1_800_000


async def _received(begun: list[RemoteConversation], index: int) -> ConversationMessage:
    await _until(lambda: len(begun) > index)
    message = await begun[index].receive()
    assert message is not None
    return message


async def test_a_call_that_was_abandoned_counts_until_nothing_is_done_for_it() -> None:
    begun: list[RemoteConversation] = []
    server = Conversations(begun.append, is_client=False, limits=Limits(conversations=8))
    client = Conversations(lambda conversation: None, is_client=True)
    ours, theirs = pair()
    serving, asking = asyncio.ensure_future(server.link.use(ours, 0)), asyncio.ensure_future(client.link.use(theirs, 0))
    for _ in range(8):
        (await client.begin({})).abandon()
    await _until(lambda: len(begun) == 8)
    begun[0].finish()
    (await client.begin({})).abandon()
    await _until(lambda: len(begun) == 9)
    await client.begin({})
    with pytest.raises(FrameError, match="8 conversations at once"):
        await serving
    asking.cancel()
