"""QEMU's control protocol (QMP): one JSON object a line, over a socket of ours. Belongs to one event loop.

Nothing that arrives is trusted: whoever broke out of a machine speaks here. Whatever is not an answer is one error, as
is a QEMU that has ended.
"""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

from fumehood.errors import StepFailedError
from fumehood.guest.contract import frames

_MOST_LINE_BYTES = 1024 * 1024
_CHUNK_BYTES = 64 * 1024
_SOON_SECONDS = 5.0
_MOST_REASON = 500
_STEP, _ENDED = "controlling a machine", "QEMU has ended"


class ControlChannel:
    def __init__(self, line: socket.socket) -> None:
        line.setblocking(False)
        self._line = line
        self._pending = bytearray()

    async def greet(self) -> None:
        """Once, first."""
        await self._next()
        await self.call("qmp_capabilities")

    async def call(self, command: str, **arguments: Any) -> Any:
        """What QEMU returns; events in between are passed over."""
        return await self._ask(command, arguments, ())

    async def call_soon(self, command: str) -> None:
        """A caller waits for what comes after it: QEMU may be stopped, and would never answer."""
        try:
            async with asyncio.timeout(_SOON_SECONDS):
                await self.call(command)
        except TimeoutError as error:
            raise StepFailedError(_STEP, f"{command}: QEMU does not answer") from error

    async def hand_over(self, name: str, descriptor: int) -> None:
        """A descriptor that later commands know by this name."""
        await self._ask("getfd", {"fdname": name}, (descriptor,))

    async def without_memory(self) -> None:
        """The states that follow are without the machine's memory, which is a file."""
        await self.call("migrate-set-capabilities", capabilities=[{"capability": "x-ignore-shared", "state": True}])

    async def migrate(self, command: str, uri: str) -> None:
        """Writes or reads the state of a machine, to the end."""
        await self.call(command, uri=uri)
        while (status := await self._migration()) != "completed":
            if status in ("failed", "cancelled"):
                raise StepFailedError("copying a machine", f"QEMU could not: {status}")
            await asyncio.sleep(0.002)

    async def _migration(self) -> object:
        match await self.call("query-migrate"):
            case {"status": status}:
                return status
            case dict():
                return None  # it has not begun
            case _:
                raise _misbehaves()

    async def _ask(self, command: str, arguments: dict[str, Any], descriptors: tuple[int, ...]) -> Any:
        message = json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n"
        try:
            # Short, and QEMU reads what it is sent: there is room for it.
            if descriptors:
                socket.send_fds(self._line, [message], descriptors)
            else:
                await asyncio.get_running_loop().sock_sendall(self._line, message)
        except OSError as error:
            raise StepFailedError(_STEP, _ENDED) from error
        while True:
            match await self._next():
                case {"return": answer}:
                    return answer
                case {"error": {"desc": str(reason)}}:
                    raise StepFailedError(_STEP, f"{command}: {reason[:_MOST_REASON]}")
                case {"error": _}:
                    raise StepFailedError(_STEP, f"{command}: no reason")
                case _:
                    # Events that come as fast as they are read hold up nobody else, nor a deadline.
                    await asyncio.sleep(0)

    async def _next(self) -> dict[str, Any]:
        while b"\n" not in self._pending:
            try:
                data = await asyncio.get_running_loop().sock_recv(self._line, _CHUNK_BYTES)
            except OSError:
                data = b""
            if not data or len(self._pending) > _MOST_LINE_BYTES:
                raise StepFailedError(_STEP, _ENDED)
            self._pending += data
        line, _, rest = self._pending.partition(b"\n")
        self._pending = bytearray(rest)
        try:
            return frames.parse(bytes(line))
        except frames.FrameError as error:
            raise _misbehaves() from error

    def close(self) -> None:
        self._line.close()


def _misbehaves() -> StepFailedError:
    return StepFailedError(_STEP, "QEMU does not keep to its protocol")
