"""Two multiplexers that hand each other their messages, with real pipes and sockets at either end."""

from __future__ import annotations

import os
import select
import socket
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from fumehood.guest.contract import wire
from fumehood.guest.contract.channel import WINDOW_BYTES, Channel
from fumehood.guest.contract.frames import FrameError, Header
from fumehood.guest.contract.multiplexer import Multiplexer

NUMBER = 7


class Ends:
    """The two ends of a stream, and what is under way between them."""

    def __init__(self) -> None:
        self.to_right: deque[tuple[Header, bytes]] = deque()
        self.to_left: deque[tuple[Header, bytes]] = deque()
        self.left = Multiplexer(lambda header, body: self.to_right.append((header, bytes(body))))
        self.right = Multiplexer(lambda header, body: self.to_left.append((header, bytes(body))))

    def settle(self, rounds: int = 200) -> None:
        """Until nothing moves any more."""
        for _ in range(rounds):
            moved = self._deliver() + self._step(self.left) + self._step(self.right)
            if not moved:
                return
        raise AssertionError("it never comes to rest")

    def _deliver(self) -> int:
        count = 0
        for queue, end in ((self.to_right, self.right), (self.to_left, self.left)):
            while queue:
                end.take(*queue.popleft())
                count += 1
        return count

    @staticmethod
    def _step(end: Multiplexer) -> int:
        happened = list(end.events(0))
        for descriptor, event in happened:
            end.step(descriptor, event)
        return len(happened)


@pytest.fixture
def ends() -> Iterator[Ends]:
    made = Ends()
    yield made
    made.left.close()
    made.right.close()


def pipe_through(ends: Ends) -> tuple[int, int]:
    """What is written to the first descriptor can be read from the second."""
    source, entrance = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    exit_, sink = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    ends.left.add(Channel(NUMBER, source, None))
    ends.right.add(Channel(NUMBER, None, sink))
    return entrance, exit_


def read_all(descriptor: int) -> bytes:
    data = bytearray()
    try:
        while piece := os.read(descriptor, 1 << 16):
            data += piece
    except BlockingIOError:
        pass
    return bytes(data)


def test_what_goes_in_comes_out_and_then_the_end(ends: Ends) -> None:
    entrance, exit_ = pipe_through(ends)
    os.write(entrance, b"one")
    ends.settle()
    assert read_all(exit_) == b"one"
    os.write(entrance, b"two")
    os.close(entrance)
    ends.settle()
    assert read_all(exit_) == b"two"
    assert os.read(exit_, 1) == b""
    assert not ends.left.numbers
    assert not ends.right.numbers
    os.close(exit_)


def test_a_slow_reader_stops_its_writer_and_loses_nothing(ends: Ends) -> None:
    entrance, exit_ = pipe_through(ends)
    sent, received = bytearray(), bytearray()
    stalled = 0
    for number in range(4000):
        piece = number.to_bytes(4, "big") * 256
        try:
            sent += piece[: os.write(entrance, piece)]
        except BlockingIOError:
            stalled += 1
            assert len(sent) - len(received) < 4 * WINDOW_BYTES
            received += os.read(exit_, 8192)
        ends.settle()
    os.close(entrance)
    for _ in range(1000):
        ends.settle()
        received += read_all(exit_)
    assert stalled
    assert received == sent
    os.close(exit_)


def test_a_reader_that_leaves_is_noticed_by_the_writer(ends: Ends) -> None:
    entrance, exit_ = pipe_through(ends)
    os.close(exit_)
    os.write(entrance, b"for nobody")
    ends.settle()
    with pytest.raises(BrokenPipeError):
        os.write(entrance, b"more")
    os.close(entrance)


def test_last_words_arrive_although_not_everything_was_heard(ends: Ends) -> None:
    """A socket whose peer left unread messages behind first says that it was reset, and only then what is in it."""
    ours, theirs = wire.socket_pair()
    listener, far = wire.socket_pair()
    for end, descriptor in ((ends.left, ours.detach()), (ends.right, far.detach())):
        end.add(Channel(NUMBER, descriptor, os.dup(descriptor)))
    listener.send(b"never read")
    ends.settle()
    theirs.send(b"last words")
    theirs.close()
    ends.settle()
    assert listener.recv(100) == b"last words"
    assert listener.recv(100) == b""
    listener.close()


def test_more_than_was_asked_for_is_refused(ends: Ends) -> None:
    pipe_through(ends)

    def flood() -> None:
        for _ in range(100):
            ends.right.take({"do": "data", "channel": NUMBER}, b"x" * (1 << 16))

    with pytest.raises(FrameError, match="more than it may"):
        flood()


def test_an_unknown_word_is_refused_and_a_late_one_is_not(ends: Ends) -> None:
    pipe_through(ends)
    with pytest.raises(FrameError, match="is not a known operation"):
        ends.right.take({"do": "dance", "channel": NUMBER}, b"")
    ends.right.take({"do": "data", "channel": NUMBER + 1}, b"late")


LIES = {
    "more was taken than was sent": ({"do": "credit", "channel": NUMBER, "bytes": 1}, b""),
    "less than nothing was taken": ({"do": "credit", "channel": NUMBER, "bytes": -1}, b""),
    "data that is none": ({"do": "data", "channel": NUMBER}, b""),
}


@pytest.mark.parametrize(("header", "body"), LIES.values(), ids=LIES.keys())
def test_what_cannot_be_is_refused_if(ends: Ends, header: Header, body: bytes) -> None:
    pipe_through(ends)
    with pytest.raises(FrameError):
        ends.right.take(header, body)


@pytest.mark.parametrize("header", [{"do": "end", "channel": NUMBER + 1}, {"do": "hangup", "channel": NUMBER}])
def test_late_words_come_to_an_end(ends: Ends, header: Header) -> None:
    pipe_through(ends)
    with pytest.raises(FrameError, match="conversations that are over"):
        repeat(partial(ends.right.take, header, b""), 100_000)


def repeat(action: Callable[[], None], times: int) -> None:
    for _ in range(times):
        action()


def test_a_socket_stays_open_in_one_direction_when_the_other_ends(ends: Ends) -> None:
    near, ours = socket.socketpair()
    far, theirs = socket.socketpair()
    for end, descriptor in ((ends.left, ours.detach()), (ends.right, theirs.detach())):
        end.add(Channel(NUMBER, descriptor, os.dup(descriptor)))
    near.send(b"question")
    near.shutdown(socket.SHUT_WR)
    ends.settle()
    assert far.recv(100) == b"question"
    assert far.recv(100) == b""
    far.send(b"answer")
    ends.settle()
    assert near.recv(100) == b"answer"
    assert select.select([near], [], [], 0)[0] == []
    near.close()
    far.close()
