"""The host's end of a guest's stream: what a run's descriptors carry goes over it, and comes back.

Lives in the backend's own event loop; other threads hand runs over to it. At the other ends of the
descriptors it looks as if the run were on this machine. Nothing that arrives is trusted: a guest that does not keep to
the protocol is cut off.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import socket
import stat
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Protocol

from fumehood.backends.interface import EgressEndpoint, TerminalSize
from fumehood.backends.relay.egress import RelayEgress
from fumehood.backends.relay.ingress import RelayIngress
from fumehood.errors import StepFailedError
from fumehood.guest.contract import frames, wire
from fumehood.guest.contract.channel import Channel
from fumehood.guest.contract.multiplexer import Multiplexer

_LAST_WORDS_BYTES = 4096
_BEAT_SECONDS = 5.0
_MAX_HEADER_BYTES = 64 * 1024
_KILLED_FOR_MEMORY = {
    "status": 9,
    "ended_by": "exit",
    "cpu_ms": 0.0,
    "peak_memory_bytes": 0,
    "trouble": {
        "refusal": None,
        "processes": 0,
        "exhausted": "memory",
        "disk_full": False,
        "out_of_memory_kills": 1,
        "refused_processes": None,
    },
}


class AttachedStream(Protocol):
    """The stream between the host and a guest; 1 is the guest's, 2 what it writes to its standard error."""

    async def read_out(self) -> Any: ...

    async def write_in(self, data: bytes) -> None: ...

    async def close(self) -> None: ...


class Bridge:
    def __init__(self, stream: AttachedStream, ran_out_of_memory: Callable[[], Awaitable[bool]]) -> None:
        self._stream = stream
        self._ran_out_of_memory = ran_out_of_memory
        self._replies: set[int] = set()
        self._decoder = frames.Decoder(max_header_bytes=_MAX_HEADER_BYTES)
        self._heard = asyncio.Event()
        self._channels = Multiplexer(self._send)
        self._outgoing = bytearray()
        self._ingress = RelayIngress(self._channels, self._send, self._take_number)
        self._egress = RelayEgress(self._channels, self._send, lambda: len(self._outgoing))
        self._wake = asyncio.Event()
        self._links: dict[int, socket.socket] = {}
        """The links of runs whose terminal has not arrived, by number."""
        self._terminals: dict[int, int] = {}
        self._next_number = 1
        self._beats = 0
        """The number of heartbeats that the guest has not answered."""
        self._stderr = bytearray()
        self._loop = asyncio.get_running_loop()
        self._told: asyncio.Future[wire.Message] = self._loop.create_future()
        self.is_over = False
        self._loop.add_reader(self._channels.epoll.fileno(), self._step)
        self._tasks = [self._loop.create_task(work()) for work in (self._read, self._write, self._beat)]

    async def wait_ready(self, place: str) -> wire.Message:
        """What the guest says when it is ready; raises why it is not. `place` is what it was to start in."""
        await asyncio.wait([self._told, self._tasks[0]], return_when=asyncio.FIRST_COMPLETED)
        if not self._told.done() or self._told.cancelled():
            raise StepFailedError(f"starting the guest in {place}", self.last_words() or "it ended without a word")
        word = self._told.result()
        if "failed" in word:
            raise StepFailedError(str(word["failed"]), str(word.get("detail")))
        return word

    async def answers(self, seconds: float) -> bool:
        """Whether anything comes from the guest in this time, when it is asked."""
        self._heard.clear()
        self._send_beat()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._heard.wait()
        return self._heard.is_set()

    def last_words(self) -> str:
        return self._stderr.decode("utf-8", "replace").strip()

    def send_raw(self, data: bytes) -> None:
        self._outgoing += data
        self._wake.set()

    def set_clock(self, time_ns: int) -> None:
        """In a guest whose clock is its own, and has stood still."""
        self._send({"do": "clock", "time_ns": time_ns}, b"")

    # Runs.

    def open_run(self, wishes: wire.Message, request: bytes, descriptors: list[int], terminal: int) -> None:
        """Takes the descriptors over; the first is the reply socket. `terminal` is what its terminal is known by."""
        if self.is_over:
            wire.close_all(descriptors)
            return
        channels: list[tuple[int, str]] = []
        leaders: list[Channel] = []
        for position, descriptor in enumerate(descriptors):
            kind = _kind(descriptor) if position else "reply"
            if kind == "link" and wishes["kind"] == "program":
                kind = "terminal"
            number = self._take_number()
            if kind == "terminal":
                self._terminals[terminal] = number
            channels.append((number, kind))
            channel = self._add(number, kind, descriptor, tuple(leaders) if kind == "link" else ())
            if kind == "output":
                leaders.append(channel)
        self._send({"do": "open", "channels": channels, "wishes": wishes}, request)

    def _take_number(self) -> int:
        self._next_number += 1
        return self._next_number

    def _add(self, number: int, kind: str, descriptor: int, leaders: tuple[Channel, ...]) -> Channel:
        match kind:
            case "input":
                channel = Channel(number, descriptor, None)
            case "output":
                channel = Channel(number, None, descriptor)
            case "empty":
                os.close(descriptor)
                return Channel(number, None, None)
            case "terminal":
                self._links[number] = socket.socket(fileno=descriptor)
                channel = Channel(number, None, None)
            case _:
                channel = Channel(number, descriptor, os.dup(descriptor), leaders)
        if kind == "reply":
            self._replies.add(number)
        self._channels.add(channel)
        return channel

    def open_listeners(self, endpoint: EgressEndpoint) -> None:
        """Opens the listeners of a run that is about to start."""
        if not self.is_over:
            self._egress.enter(endpoint)

    def close_listeners(self, endpoint: EgressEndpoint) -> None:
        if not self.is_over:
            self._egress.leave(endpoint)

    def change_ports(self, ports: tuple[int, ...]) -> None:
        if not self.is_over:
            self._egress.change(ports)

    def connect(self, port: int, answer: socket.socket) -> None:
        """A connection to a port of the guest's loopback; `answer` gets it, or is closed."""
        if self.is_over:
            answer.close()
        else:
            self._ingress.connect(port, answer)

    def resize(self, terminal: int, size: TerminalSize) -> None:
        if terminal in self._terminals:
            number = self._terminals[terminal]
            self._send({"do": "size", "channel": number, "columns": size.columns, "rows": size.rows}, b"")

    def _connect_terminal(self, number: int) -> None:
        """It is made inside; what the caller gets is a socket with the terminal behind it."""
        link = self._links.pop(number)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        with link, theirs, suppress(OSError):  # the caller may have gone already
            socket.send_fds(link, [b"terminal"], [theirs.fileno()])
        source = ours.detach()
        self._channels.connect(number, source, os.dup(source))

    # Bytes.

    def _step(self) -> None:
        for descriptor, event in self._channels.events(0):
            self._channels.step(descriptor, event)

    def _send(self, header: frames.Header, body: bytes) -> None:
        if not self.is_over:
            self.send_raw(frames.encode(header, body))

    async def _write(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            data, self._outgoing = bytes(self._outgoing), bytearray()
            await self._stream.write_in(data)

    async def _beat(self) -> None:
        """The guest ends when it hears nothing: it cannot see that what is between us is gone."""
        while not self.is_over:
            await asyncio.sleep(_BEAT_SECONDS)
            self._send_beat()

    def _send_beat(self) -> None:
        self._beats += 1
        self._send({"do": "beat"}, b"")

    def _take_beat(self) -> None:
        """One for each of ours."""
        self._beats -= 1
        if self._beats < 0:
            raise frames.FrameError("the guest answers what it was not asked")

    async def _read(self) -> None:
        try:
            while (message := await self._stream.read_out()) is not None:
                if message.stream == 1:
                    self._take(message.data)
                else:
                    self._stderr = (self._stderr + message.data)[-_LAST_WORDS_BYTES:]
        except (frames.FrameError, LookupError, TypeError, ValueError, AttributeError) as error:
            self._stderr += f"the guest broke the protocol: {error}".encode()
        except (OSError, RuntimeError):
            pass  # the connection is gone, which the end says
        else:
            await self._tell_of_memory()
        finally:
            self._finish()

    async def _tell_of_memory(self) -> None:
        """The kernel took the guest with the program: runs that are under way get the answer that it cannot give."""
        waiting = [sink for number in self._replies if (sink := self._channels.sink_of(number)) is not None]
        if waiting and await self._ran_out_of_memory():
            for sink in waiting:
                with suppress(OSError):
                    os.write(sink, json.dumps(_KILLED_FOR_MEMORY).encode())

    def _take(self, data: bytes) -> None:
        self._heard.set()
        self._decoder.feed(data)
        while (message := self._decoder.next()) is not None:
            header, body = message
            match header["do"]:
                case "told":
                    if self._told.done():
                        raise frames.FrameError("the guest says again that it is ready")
                    self._told.set_result(header)
                case "beat":
                    self._take_beat()
                case "terminal":
                    self._connect_terminal(header["channel"])
                case "connect":
                    self._egress.admit(header)
                case "reached":
                    self._ingress.reached(header)
                case "ask":
                    self._egress.answer(header, body)
                case _:
                    self._channels.take(header, body)

    # The end.

    def _finish(self) -> None:
        """Closes everything after the guest has ended: readers of its streams see their end."""
        if self.is_over:
            return
        self.is_over = True
        self._loop.remove_reader(self._channels.epoll.fileno())
        self._channels.close()
        self._ingress.close()
        for link in self._links.values():
            link.close()

    async def close(self) -> None:
        """Hang up, which ends the guest."""
        for task in self._tasks:
            task.cancel()
        self._finish()
        with suppress(OSError, RuntimeError, AssertionError):
            await self._stream.close()


def _kind(descriptor: int) -> str:
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISSOCK(mode):
        return "link"
    if not stat.S_ISFIFO(mode):
        return "empty"
    access = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE
    return "input" if access == os.O_RDONLY else "output"
