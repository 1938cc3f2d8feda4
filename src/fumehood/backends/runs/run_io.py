"""The input and output of one run, without an event loop: `step` never waits, `fileno` is readable when it can work."""

from __future__ import annotations

import array
import fcntl
import json
import os
import select
import socket
import stat
import termios
from contextlib import suppress
from typing import Any

from fumehood.backends.interface import Output
from fumehood.backends.runs.answers import parse_answer
from fumehood.backends.runs.descriptors import RunDescriptors
from fumehood.backends.runs.stdin import StdinWriter
from fumehood.guest.contract import wire

_CHUNK_BYTES = 64 * 1024
_END = json.dumps({"do": "end"}).encode()


class RunIO:
    """Reads a run's output and its answer, writes its input. Owns the given descriptors."""

    def __init__(
        self, descriptors: RunDescriptors, stdin: bytes | int | None, output_limit: int, *, is_direct: bool
    ) -> None:
        """`is_direct` says that the program itself writes to our pipes: what it wrote is there when it has ended."""
        self._reply = descriptors.reply
        self._streams = descriptors.streams
        self._link = descriptors.link
        self._room = output_limit
        self._is_direct = is_direct
        self._rest: dict[int, int] = {}
        """Bytes left in each pipe from a program that has ended. Other processes may still write to the pipe."""
        self._unsent: dict[bytes, None] = {}
        """Commands for which a guest that does not read has no room, each once; they are sent when it reads again."""
        self._epoll: select.epoll | None = None
        """Of all that is watched, once that is more than the reply: most runs are over before it is."""
        self._stdin: StdinWriter | None = None
        self._is_listening = False
        self.input = descriptors.input
        """The program's live input; None when there is none, or no more."""
        self.answer: dict[str, Any] | None = None
        self.is_answered = False
        self.is_lost = False
        """Whether the guest was given up before it answered."""
        self.usage: dict[str, Any] | None = None
        """The resource usage of an idle session, when it was requested."""
        self.output_exceeded = False
        if self._link:
            self._watched().register(self._link, select.EPOLLIN)
        if self.input is not None and stdin is not None:
            self._stdin, self.input = StdinWriter(self.input, stdin), None
            self._stdin.start(self._watched())

    def _watched(self) -> select.epoll:
        if self._epoll is None:
            self._epoll = select.epoll()
            if not self.is_answered:
                self._epoll.register(self._reply, select.EPOLLIN)
        return self._epoll

    def listen(self) -> None:
        """Wake up for output from now on, and not only for the end."""
        self._is_listening = True
        if self._epoll is None and self._has_all_output:
            return
        for descriptor in self._streams:
            self._watched().register(descriptor, select.EPOLLIN)

    def fileno(self) -> int:
        """Readable whenever `step` has something to do. Another one after `listen`."""
        return self._reply.fileno() if self._epoll is None else self._epoll.fileno()

    @property
    def _has_all_output(self) -> bool:
        return self.is_answered and self._is_direct

    @property
    def is_done(self) -> bool:
        return self.is_answered and not self._streams

    @property
    def is_ending(self) -> bool:
        """The program is over and what it wrote last is here: a bounded rest that needs no waiting."""
        return self.is_answered and (self._epoll is None or bool(self._epoll.poll(0, 1)))

    def step(self) -> list[Output]:
        """Take what is there, at most one chunk of each stream."""
        if self._epoll is None:
            return self._step_alone()
        outputs: list[Output] = []
        for descriptor, events in self._epoll.poll(0):
            if descriptor == self._reply.fileno():
                if events & select.EPOLLOUT:
                    self._send_unsent()
                if events & ~select.EPOLLOUT:
                    self._read_reply(self._reply)
            elif descriptor in self._streams:
                outputs += self._read_stream(descriptor)
            elif self._link and descriptor == self._link.fileno():
                self._read_link(self._link)
            elif self._stdin:
                self._stdin.step(descriptor)
        return outputs

    def _step_alone(self) -> list[Output]:
        """Without an epoll object there is a reply to wait for, or the last output of a program that has ended."""
        if not self.is_answered:
            with suppress(BlockingIOError):
                self._read_reply(self._reply)
        elif self._is_listening:
            return [output for descriptor in list(self._streams) for output in self._read_stream(descriptor)]
        return []

    def _read_stream(self, descriptor: int) -> list[Output]:
        stream, rest = self._streams[descriptor], self._rest.get(descriptor)
        try:
            data = os.read(descriptor, _CHUNK_BYTES if rest is None else min(rest, _CHUNK_BYTES))
        except BlockingIOError:
            if rest is None:
                return []  # the program was quicker and took it back
            data = b""
        except OSError:
            data = b""  # a terminal whose other end is closed
        if rest is not None:
            self._rest[descriptor] = rest - len(data)
        if not data or self._rest.get(descriptor) == 0:
            self._drop_stream(descriptor)
        data = data[: self._charge(len(data))]
        return [Output(stream, data)] if data else []

    def _bound_rest(self) -> None:
        """The program has ended with all its processes: what is written from here on is not its output."""
        for descriptor in [each for each in self._streams if stat.S_ISFIFO(os.fstat(each).st_mode)]:
            self._rest[descriptor] = _waiting_bytes(descriptor)
            if not self._rest[descriptor]:
                self._drop_stream(descriptor)

    def _charge(self, size: int) -> int:
        """How much of it is within the limit."""
        if size > self._room:
            self.output_exceeded = True
            self._stop_excess()
        granted = min(size, self._room)
        self._room -= granted
        return granted

    def _stop_excess(self) -> None:
        self.kill()

    def _drop_stream(self, descriptor: int) -> None:
        if self._is_listening and self._epoll is not None:
            self._epoll.unregister(descriptor)
        self._close_stream(descriptor)

    def _close_stream(self, descriptor: int) -> None:
        del self._streams[descriptor]
        if self.input == descriptor:
            self.input = None
        os.close(descriptor)

    def _read_link(self, link: socket.socket) -> None:
        """The terminal comes before the program starts; when it does not, there is an answer that says why."""
        _, ancillary, _, _ = link.recvmsg(16, socket.CMSG_SPACE(4), socket.MSG_CMSG_CLOEXEC)
        self._watched().unregister(link)
        for level, kind, payload in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                terminal, *others = array.array("i", payload)
                wire.close_all(others)
                os.set_blocking(terminal, False)
                self._streams[terminal] = 1
                self.input = terminal
                if self._is_listening:
                    self._watched().register(terminal, select.EPOLLIN)

    def _read_reply(self, reply: socket.socket) -> None:
        try:
            data = reply.recv(_CHUNK_BYTES, socket.MSG_DONTWAIT)
        except ConnectionResetError:
            # It did not read our last command before it answered; the answer comes after this error, if there is one.
            data = reply.recv(_CHUNK_BYTES)
        message = parse_answer(data) if data else None
        if message and "usage" in message:
            self.usage = message["usage"]
            return
        self.answer, self.is_answered = message, True
        self._unsent.clear()
        if self._epoll is not None:
            self._epoll.unregister(reply)
        if self._is_direct:
            self._bound_rest()

    def lose(self) -> None:
        """The guest does not answer any more: there is nothing to wait for."""
        if not self.is_answered:
            self.is_answered = self.is_lost = True
            self._unsent.clear()
            if self._epoll is not None:
                self._epoll.unregister(self._reply)
        for descriptor in list(self._streams):
            self._close_stream(descriptor)

    def kill(self) -> None:
        """A guest that has no room for the command finds the end of its commands, which means the same."""
        self._unsent.clear()
        if not self._is_sent(_END):
            with suppress(OSError):
                self._reply.shutdown(socket.SHUT_WR)

    def send(self, message: dict[str, object]) -> None:
        """A command to the guest about this run; ignored when the run is over. Never waits for the guest.

        While the guest does not read, a command that is repeated counts once, as a signal does that is pending.
        """
        data = json.dumps(message).encode()
        if self._unsent or not self._is_sent(data):
            self._unsent.pop(data, None)
            self._unsent[data] = None
            self._watched().modify(self._reply, select.EPOLLIN | select.EPOLLOUT)

    def _is_sent(self, data: bytes) -> bool:
        try:
            self._reply.send(data, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return self.is_answered
        except OSError:
            return True  # the run is over
        return True

    def _send_unsent(self) -> None:
        while self._unsent:
            data = next(iter(self._unsent))
            if not self._is_sent(data):
                return
            del self._unsent[data]
        self._watched().modify(self._reply, select.EPOLLIN)

    def close_input(self) -> None:
        """The program sees the end of its input."""
        if self.input is not None and self.input not in self._streams:
            os.close(self.input)
            self.input = None

    def close(self) -> None:
        if self._stdin:
            self._stdin.close()
        self.close_input()
        self._unsent.clear()
        if self._epoll is not None:
            self._epoll.close()
        self._reply.close()
        if self._link:
            self._link.close()
        for descriptor in self._streams:
            os.close(descriptor)
        self._streams, self.input = {}, None


def _waiting_bytes(descriptor: int) -> int:
    (count,) = array.array("i", fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)))
    return count
