"""Process 1 of a container: turns what arrives on the standard streams into pipes and sockets, and back.

It handles the data of all runs, so no run may ever be a copy of it: runs are forked by the forker, which is started
before the first byte of a request has arrived. No program can stop process 1, look at it or reach its streams.
It ends when the host hangs up or has not been heard for long, and the kernel ends everything else with it.
"""

from __future__ import annotations

import array
import fcntl
import json
import os
import select
import signal
import socket
import struct
import sys
import termios
import time
from collections import deque
from contextlib import suppress
from typing import NoReturn

from ..contract import frames, wire
from ..contract.channel import Channel
from ..contract.multiplexer import Multiplexer
from ..contract.relay_spec import RelaySpec
from ..isolation import kernel
from ..isolation.steps import StepError, step
from . import forker
from .connectors import RelayConnectors
from .isolation import acting_as
from .listeners import RelayListeners

_CHUNK_BYTES = 256 * 1024
# Above what standard streams of runs can be, so that none of theirs ever takes the place of one of these.
_FIRST_OWN_DESCRIPTOR = 100


def main(spec: RelaySpec, rest: bytes) -> NoReturn:
    """`rest` are bytes that were read together with the specification."""
    try:
        source, sink = _take_streams()
        control, theirs = wire.socket_pair()
        child = os.fork()
        if child == 0:
            control.close()
            os.close(source)
            os.close(sink)
            forker.main(theirs, spec)
        theirs.close()
        Service(source, sink, control, rest, spec).serve()
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        os._exit(1)


def _take_streams() -> tuple[int, int]:
    """Out of reach of everybody: not at the usual numbers, not for other processes, not by their names in /proc."""
    # SAFETY: an undumpable process's files in /proc belong to root, and no process here is root to the kernel.
    kernel.set_dumpable(False)
    kernel.rename_process([sys.executable])
    own: list[int] = []
    for standard in (0, 1):
        with suppress(OSError):
            os.fchmod(standard, 0)
        descriptor = _FIRST_OWN_DESCRIPTOR + standard
        os.dup2(standard, descriptor, inheritable=False)
        os.set_blocking(descriptor, False)
        own.append(descriptor)
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for standard in (0, 1):
        os.dup2(nothing, standard)
    os.close(nothing)
    return own[0], own[1]


class Service:
    """Single-threaded; all it does is move bytes."""

    def __init__(self, source: int, sink: int, control: socket.socket, rest: bytes, spec: RelaySpec) -> None:
        self._user, self._patience = spec["user"], spec["patience_seconds"]
        self._heard_at = time.monotonic()
        self._source, self._sink, self._control = source, sink, control
        self._decoder = frames.Decoder(max_body_bytes=0xFFFFFFFF)
        self._decoder.feed(rest)
        self._outgoing: deque[memoryview] = deque()
        self._is_writing = False
        self._channels = Multiplexer(self._send, self._conclude)
        self._terminal_of: dict[int, int] = {}
        self._outputs_of: dict[int, list[int]] = {}
        """Both by the channel of a run's reply."""
        self._terminals: dict[int, tuple[socket.socket, int]] = {}
        self._epoll = self._channels.epoll
        self._listeners = RelayListeners(self._channels, self._send)
        self._connectors = RelayConnectors(self._channels, self._send)

    def serve(self) -> NoReturn:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._epoll.register(self._source, select.EPOLLIN)
        self._epoll.register(self._control, select.EPOLLIN)
        self._take_messages()
        while True:
            for descriptor, event in self._channels.events(self._patience):
                self._handle_event(descriptor, event)
            _reap()
            if time.monotonic() - self._heard_at > self._patience:
                # An engine that was killed, or a network that is gone, does not close the stream.
                os._exit(0)

    def _handle_event(self, descriptor: int, event: int) -> None:
        if descriptor == self._source:
            self._read()
        elif descriptor == self._sink:
            self._write()
        elif descriptor == self._control.fileno():
            self._handle_forker_message()
        elif descriptor in self._terminals:
            self._connect_terminal(*self._terminals[descriptor])
        elif not self._listeners.handle_event(descriptor) and not self._connectors.handle_event(descriptor):
            self._channels.step(descriptor, event)

    def _handle_forker_message(self) -> None:
        message, _ = wire.receive(self._control)
        if message is None:
            # Without it nothing can be started or ended any more: better no sandbox than one without supervision.
            os._exit(1)
        self._send({"do": "told", **message}, b"")

    def _read(self) -> None:
        try:
            data = os.read(self._source, _CHUNK_BYTES)
        except BlockingIOError:
            return
        if not data:
            os._exit(0)
        self._heard_at = time.monotonic()
        self._decoder.feed(data)
        self._take_messages()

    def _take_messages(self) -> None:
        while (message := self._decoder.next()) is not None:
            header, body = message
            match header["do"]:
                case "open":
                    self._open(header, body)
                case "size":
                    _resize(self._channels, header)
                case "beat":
                    self._send({"do": "beat"}, b"")  # so that the host knows that the guest is alive
                case "clock":
                    time.clock_settime_ns(time.CLOCK_REALTIME, header["time_ns"])
                case "ports":
                    self._listeners.change(header["ports"])
                case "reach":
                    self._connectors.open(header)
                case "answer":
                    self._listeners.answer(header, body)
                case _:
                    self._channels.take(header, body)

    def _open(self, header: frames.Header, body: bytes) -> None:
        """A run. What cannot be had for it, because programs have taken it all, is this run's failure alone."""
        try:
            with step("making a run's streams"):
                self._hand_over(header, body)
        except StepError as error:
            self._refuse([number for number, _ in header["channels"]], error)

    def _hand_over(self, header: frames.Header, body: bytes) -> None:
        """Its descriptors are made here, one side kept, the other handed to the forker."""
        reply = header["channels"][0][0]
        theirs = [_memory_file(body)]
        outputs: list[Channel] = []
        try:
            for number, kind in header["channels"]:
                if kind == "empty":
                    theirs.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
                    continue
                with acting_as(self._user):
                    channel, their_end = _make(number, kind, tuple(outputs) if kind == "link" else ())
                theirs.append(their_end)
                if kind == "terminal":
                    self._terminal_of[reply] = number
                    self._await_terminal(channel)
                    continue
                self._channels.add(channel)
                if kind == "output":
                    outputs.append(channel)
            # The reply channel comes first on this side of the wire.
            wire.send(self._control, header["wishes"], (theirs[1], theirs[0], *theirs[2:]))
        finally:
            wire.close_all(theirs)
        self._outputs_of[reply] = [channel.number for channel in outputs]

    def _refuse(self, numbers: list[int], error: StepError) -> None:
        for number in numbers:
            self._channels.drop(number)
        self._send({"do": "data", "channel": numbers[0]}, json.dumps(error.as_message()).encode())
        for number in numbers:
            self._send({"do": "end", "channel": number}, b"")
            self._send({"do": "hangup", "channel": number}, b"")

    def _conclude(self, number: int) -> None:
        """A run is over when its supervisor hangs up: who else holds its streams by then is none of its processes."""
        for output in self._outputs_of.pop(number, ()):
            self._channels.finish(output)
        # Not every kernel says of a terminal that no process holds it any more.
        if number in self._terminal_of:
            self._channels.exhaust(self._terminal_of.pop(number))

    def _await_terminal(self, channel: Channel) -> None:
        """The program opens it, and sends us the other end before it starts."""
        assert channel.source is not None
        assert channel.sink is not None
        link = socket.socket(fileno=channel.source)
        os.close(channel.sink)
        self._channels.add(Channel(channel.number, None, None))
        self._terminals[link.fileno()] = (link, channel.number)
        self._epoll.register(link, select.EPOLLIN)

    def _connect_terminal(self, link: socket.socket, number: int) -> None:
        del self._terminals[link.fileno()]
        self._channels.outdate(link.fileno())
        with link:
            _, ancillary, _, _ = link.recvmsg(16, socket.CMSG_SPACE(4), socket.MSG_CMSG_CLOEXEC)
        for level, kind, payload in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                descriptor, *others = array.array("i", payload)  # there is room for two
                wire.close_all(others)
                self._channels.connect(number, descriptor, os.dup(descriptor))
                self._send({"do": "terminal", "channel": number}, b"")
                return
        self._send({"do": "end", "channel": number}, b"")
        self._channels.drop(number)

    def _send(self, header: frames.Header, body: bytes) -> None:
        self._outgoing.append(memoryview(frames.encode(header, body)))
        if not self._is_writing:
            self._write()

    def _write(self) -> None:
        while self._outgoing:
            try:
                count = os.write(self._sink, self._outgoing[0])
            except BlockingIOError:
                self._set_writing(True)
                return
            except OSError:
                os._exit(0)  # the host has hung up
            if count == len(self._outgoing[0]):
                self._outgoing.popleft()
            else:
                self._outgoing[0] = self._outgoing[0][count:]
        self._set_writing(False)

    def _set_writing(self, wanted: bool) -> None:
        if wanted and not self._is_writing:
            self._epoll.register(self._sink, select.EPOLLOUT)
        elif self._is_writing and not wanted:
            self._epoll.unregister(self._sink)
        self._is_writing = wanted


def _make(number: int, kind: str, leaders: tuple[Channel, ...]) -> tuple[Channel, int]:
    """Our side as a channel, and the other side's descriptor."""
    if kind == "input":
        read, write = os.pipe2(os.O_CLOEXEC)
        return Channel(number, None, write), read
    if kind == "output":
        read, write = os.pipe2(os.O_CLOEXEC)
        return Channel(number, read, None), write
    if kind == "reply":
        ours, theirs = wire.socket_pair()
    else:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    source = ours.detach()
    return Channel(number, source, os.dup(source), leaders), theirs.detach()


def _memory_file(content: bytes) -> int:
    descriptor = os.memfd_create("request", os.MFD_CLOEXEC)
    with open(descriptor, "wb", closefd=False) as stream:
        stream.write(content)
    return descriptor


def _reap() -> None:
    """Process 1 gets the orphans whose supervisor is gone."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


def _resize(channels: Multiplexer, header: frames.Header) -> None:
    """A run's terminal, to the size of the host's window."""
    descriptor = channels.sink_of(header["channel"])
    if descriptor is not None:
        with suppress(OSError):  # it has just been closed
            fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", header["rows"], header["columns"], 0, 0))
