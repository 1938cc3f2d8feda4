"""Many conversations on one stream, each with its own flow control. Both ends use it.

It moves bytes between local descriptors and messages, waits for nothing, and knows neither what the bytes mean nor how
messages travel. The amount under way is bounded for each conversation: the receiver says how much more it takes, so
that a slow reader slows down only its own writer.
"""

from __future__ import annotations

import array
import fcntl
import os
import select
import termios
from collections.abc import Callable, Iterator

from .channel import WINDOW_BYTES, Channel
from .frames import FrameError, Header

_CHUNK_BYTES = 64 * 1024
_WORTH_TELLING = WINDOW_BYTES // 4
# Of a conversation, when it is over here and the other end does not know: data as far as its credit goes, and its end.
_MOST_LATE = WINDOW_BYTES // 64
_GONE = select.EPOLLERR | select.EPOLLHUP

Send = Callable[[Header, bytes], None]


class Multiplexer:
    """Owns the descriptors of its channels and an epoll that says when `step` has something to do."""

    def __init__(self, send: Send, on_end: Callable[[int], None] | None = None) -> None:
        """`on_end` is called with the number of a channel when there is nothing more to read for it here."""
        self._on_end = on_end
        self.epoll = select.epoll()
        self._send = send
        self._channels: dict[int, Channel] = {}
        self._readers: dict[int, Channel] = {}
        self._writers: dict[int, Channel] = {}
        self._outdated: set[int] = set()
        self._left_over = 0
        """How many messages may still come for channels that are closed here."""

    def add(self, channel: Channel) -> None:
        self._channels[channel.number] = channel
        self._left_over += _MOST_LATE
        if channel.source is not None:
            self._listen(channel)
        if channel.sink is not None:
            self._writers[channel.sink] = channel
            # Nothing to write yet; epoll still reports when the reader has closed its end.
            self.epoll.register(channel.sink, 0)

    def connect(self, number: int, source: int | None, sink: int | None) -> None:
        """Descriptors for a channel that has been waiting for them."""
        channel = self._channels.get(number)
        if channel is None:
            for descriptor in {source, sink} - {None}:
                os.close(descriptor)  # type: ignore[arg-type]
            return
        self.add(Channel(number, source, sink, channel.leaders))

    def sink_of(self, number: int) -> int | None:
        channel = self._channels.get(number)
        return channel.sink if channel else None

    @property
    def numbers(self) -> list[int]:
        return list(self._channels)

    def events(self, timeout: float = -1) -> Iterator[tuple[int, int]]:
        """What has happened, for `step`. A descriptor's number may have a new owner since; then it is not told."""
        self._outdated.clear()
        for descriptor, event in self.epoll.poll(timeout):
            if descriptor not in self._outdated:
                yield descriptor, event

    def outdate(self, descriptor: int) -> None:
        """It is about to be closed."""
        self.epoll.unregister(descriptor)
        self._outdated.add(descriptor)

    def step(self, descriptor: int, event: int) -> None:
        """Something happened to a descriptor of ours."""
        if descriptor in self._readers:
            self._read(self._readers[descriptor])
        elif descriptor in self._writers:
            channel = self._writers[descriptor]
            if event & _GONE and not event & select.EPOLLOUT:
                self._hang_up(channel)
            else:
                self._write(channel)

    def take(self, header: Header, body: bytes) -> None:
        """A message from the other end. One for a channel that is closed here already is late, not wrong."""
        channel = self._channels.get(header["channel"])
        if channel is None:
            self._bear_with_late()
            return
        match header["do"]:
            case "data":
                self._accept(channel, body)
            case "credit":
                if not 0 < header["bytes"] <= WINDOW_BYTES - channel.credit:
                    raise FrameError("the other end has taken what it was not sent")
                channel.credit += header["bytes"]
                self._listen(channel)
                self._wake_followers(channel)
            case "end":
                if channel.is_ended:
                    self._bear_with_late()
                channel.is_ended = True
                self._write(channel)
            case "hangup":
                if channel.source is None:
                    self._bear_with_late()
                self._stop_reading(channel)
            case unknown:
                raise FrameError(f"a message asks for {unknown!r}, which is not a known operation")

    def _bear_with_late(self) -> None:
        self._left_over -= 1
        if self._left_over < 0:
            raise FrameError("the other end goes on about conversations that are over")

    def finish(self, number: int) -> None:
        """No more than what waits in this pipe now: others may have got hold of its other end."""
        channel = self._channels.get(number)
        if channel is not None and channel.source is not None:
            channel.rest_bytes = _waiting_bytes(channel.source)
            self._end_when_taken(channel)

    def exhaust(self, number: int) -> None:
        """Take what is there, and that was all: for descriptors that do not say so themselves."""
        channel = self._channels.get(number)
        if channel is None:
            return
        while channel.source is not None and self._read_some(channel):
            pass
        if channel.source is not None:
            self._send({"do": "end", "channel": number}, b"")
        self.drop(number)

    def drop(self, number: int) -> None:
        channel = self._channels.get(number)
        if channel is not None:
            self._close_sink(channel)
            self._stop_reading(channel)

    def close(self) -> None:
        for number in self.numbers:
            self.drop(number)
        self.epoll.close()

    # From here to the other end.

    def _listen(self, channel: Channel) -> None:
        if channel.source is not None and channel.credit > 0 and channel.source not in self._readers:
            self._readers[channel.source] = channel
            self.epoll.register(channel.source, select.EPOLLIN)

    def _ignore(self, channel: Channel) -> None:
        if channel.source is not None and self._readers.pop(channel.source, None):
            self.outdate(channel.source)

    def _read(self, channel: Channel) -> None:
        for leader in channel.leaders:
            # What was said there before this must arrive before this.
            while leader.source in self._readers and self._read_some(leader):
                pass
            if leader.source is not None and leader.credit <= 0:
                self._ignore(channel)
                return
        self._read_some(channel)

    def _read_some(self, channel: Channel) -> bool:
        assert channel.source is not None
        try:
            # All of it, even when that is more than the credit: half a message could not be told from a whole one.
            data = _read_past_reset(channel.source, channel.rest_bytes or _CHUNK_BYTES)
        except BlockingIOError:
            if channel.rest_bytes is None:
                return False
            data = b""  # another reader has taken the rest
        except OSError:
            data = b""  # a terminal that no process holds any more
        if not data:
            self._end(channel)
            return False
        channel.credit -= len(data)
        self._send({"do": "data", "channel": channel.number}, data)
        if channel.credit <= 0:
            self._ignore(channel)
        if channel.rest_bytes is not None:
            channel.rest_bytes -= len(data)
            self._end_when_taken(channel)
        return True

    def _end_when_taken(self, channel: Channel) -> None:
        if channel.rest_bytes == 0:
            self._end(channel)

    def _end(self, channel: Channel) -> None:
        self._send({"do": "end", "channel": channel.number}, b"")
        self._stop_reading(channel)
        if self._on_end:
            self._on_end(channel.number)

    def _stop_reading(self, channel: Channel) -> None:
        self._ignore(channel)
        channel.close_source()
        self._wake_followers(channel)
        self._forget_finished(channel)

    # From the other end to here.

    def _accept(self, channel: Channel, body: bytes) -> None:
        if not body:
            raise FrameError("the other end sends nothing, and says that it is something")
        if channel.sink is None:
            return
        if channel.pending_bytes + len(body) > WINDOW_BYTES + _CHUNK_BYTES:
            raise FrameError("the other end sends more than it may")
        channel.pending.append(memoryview(body))
        channel.pending_bytes += len(body)
        self._write(channel)

    def _write(self, channel: Channel) -> None:
        if channel.sink is None:
            return
        if any(leader.pending for leader in channel.leaders):
            return  # the leader's last write comes back to us
        try:
            while channel.pending:
                self._write_some(channel, channel.sink)
        except BlockingIOError:
            self.epoll.modify(channel.sink, select.EPOLLOUT)
            return
        except OSError:
            self._hang_up(channel)
            return
        self.epoll.modify(channel.sink, 0)
        if channel.is_ended:
            self._close_sink(channel)
        self._wake_followers(channel)
        self._forget_finished(channel)

    def _write_some(self, channel: Channel, sink: int) -> None:
        chunk = channel.pending[0]
        count = os.write(sink, chunk)
        if count == len(chunk):
            channel.pending.popleft()
        else:
            channel.pending[0] = chunk[count:]
        channel.pending_bytes -= count
        channel.delivered_bytes += count
        if channel.delivered_bytes >= _WORTH_TELLING and not channel.is_ended:
            self._send({"do": "credit", "channel": channel.number, "bytes": channel.delivered_bytes}, b"")
            channel.delivered_bytes = 0

    def _hang_up(self, channel: Channel) -> None:
        """Sends that this end no longer reads, so that the writer at the other end notices."""
        if not channel.is_ended:
            self._send({"do": "hangup", "channel": channel.number}, b"")
        self._close_sink(channel)
        self._wake_followers(channel)
        self._forget_finished(channel)

    def _close_sink(self, channel: Channel) -> None:
        if channel.sink is not None:
            self._writers.pop(channel.sink, None)
            self.outdate(channel.sink)
            channel.close_sink()

    def _wake_followers(self, leader: Channel) -> None:
        for channel in [channel for channel in self._channels.values() if leader in channel.leaders]:
            self._listen(channel)
            self._write(channel)

    def _forget_finished(self, channel: Channel) -> None:
        if channel.source is None and channel.sink is None and self._channels.get(channel.number) is channel:
            del self._channels[channel.number]


def _read_past_reset(descriptor: int, most_bytes: int) -> bytes:
    """Reads after a reset: a peer that closes with unread input resets the socket, but what it sent is still there."""
    try:
        return os.read(descriptor, min(most_bytes, _CHUNK_BYTES))
    except ConnectionResetError:
        return os.read(descriptor, min(most_bytes, _CHUNK_BYTES))


def _waiting_bytes(descriptor: int) -> int:
    (count,) = array.array("i", fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)))
    return count
