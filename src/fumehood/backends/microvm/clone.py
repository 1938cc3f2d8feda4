"""A machine that continues from a template, with a guest in it that is ready for runs."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
import time
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from fumehood.backends.microvm.confinement import ConfinedProcess, Confinement
from fumehood.backends.microvm.image import MachineImage
from fumehood.backends.microvm.launch import Emulation, launch
from fumehood.backends.microvm.qmp import ControlChannel
from fumehood.backends.microvm.template import MachineTemplate, whole_guest, with_length
from fumehood.backends.relay.bridge import Bridge
from fumehood.errors import StepFailedError
from fumehood.frozen import frozen
from fumehood.guest.contract.machine_spec import ENTROPY_BYTES, MachineStart
from fumehood.tenant import Tenant

_START_SECONDS = 60.0
# A guest that is there answers within this; with the host's grace it is less than a second.
_ANSWER_SECONDS = 0.7
# One that is not stopped may have a machine that is overloaded; its own processor is slow, too.
_SLOW_SECONDS = 10.0
_OVERTIME_SECONDS = 15.0
_END_SECONDS = 2.0
_CHUNK_BYTES = 256 * 1024


class StreamPart(NamedTuple):
    stream: int
    data: bytes


class MachineStream:
    """The machine's two serial ports as one stream with errors beside it. Meets `AttachedStream`."""

    def __init__(self, relay: socket.socket, errors: socket.socket) -> None:
        self._relay, self._errors = relay, errors
        self._parts: asyncio.Queue[StreamPart | None] = asyncio.Queue(4)
        self._readers = [asyncio.ensure_future(self._read(line, number)) for number, line in ((1, relay), (2, errors))]

    async def _read(self, line: socket.socket, number: int) -> None:
        loop = asyncio.get_running_loop()
        try:
            while data := await loop.sock_recv(line, _CHUNK_BYTES):
                await self._parts.put(StreamPart(number, data))
        except OSError:
            pass  # QEMU has ended
        if number == 1:
            await self._parts.put(None)

    async def read_out(self) -> StreamPart | None:
        return await self._parts.get()

    async def write_in(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self._relay, data)

    async def close(self) -> None:
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)
        self._relay.close()
        self._errors.close()


class Machine:
    """Belongs to the backend's event loop. Meets `RelayGuest`."""

    def __init__(self, emulation: Emulation) -> None:
        self._emulation = emulation
        stream = MachineStream(emulation.relay, emulation.errors)
        self.bridge = Bridge(stream, partial(_ran_out_of_memory, emulation.process))
        self.loop = asyncio.get_running_loop()
        self.layers: tuple[str, ...] = ()
        self._is_paused = False

    @property
    def is_alive(self) -> bool:
        return not self.bridge.is_over

    async def rest(self) -> None:
        """Stops the machine, which takes no processor then, until `answers` is asked."""
        await self._emulation.control.call_soon("stop")
        self._is_paused = True

    async def _wake(self) -> None:
        """Lets it go on, with the time of now."""
        if self._is_paused:
            self._is_paused = False
            self.bridge.set_clock(time.time_ns())
            with suppress(StepFailedError):  # QEMU is gone or stopped, which the bridge says
                await self._emulation.control.call_soon("cont")

    async def answers(self) -> bool:
        await self._wake()
        return self.is_alive and await self.bridge.answers(_ANSWER_SECONDS)

    async def is_lost(self, overdue_seconds: float) -> bool:
        if overdue_seconds > _OVERTIME_SECONDS:
            return True
        return not (await self.answers() or await self.bridge.answers(_SLOW_SECONDS))

    async def close(self) -> None:
        """When this returns QEMU and all that it held is gone."""
        try:
            await self.bridge.close()
        finally:
            await self._emulation.close()


@frozen
class CopySpec:
    """What a copy of a machine is started with."""

    template: MachineTemplate
    image: MachineImage
    start: MachineStart
    packages: Path | None
    cpus: float
    tenant: Tenant


async def start_machine(confinement: Confinement, spec: CopySpec) -> Machine:
    """Restores a copy, and makes it unlike all others before anything runs in it."""
    try:
        async with asyncio.timeout(_START_SECONDS):
            return await _started(confinement, spec)
    except TimeoutError as error:
        raise StepFailedError("starting a machine", f"its guest was not ready in {_START_SECONDS:.0f} s") from error


async def _started(confinement: Confinement, spec: CopySpec) -> Machine:
    template = spec.template
    emulation = await launch(
        confinement,
        template.machine,
        spec.image,
        template.ram,
        boots=False,
        packages=spec.packages,
        cpus=spec.cpus,
        tenant=spec.tenant,
    )
    machine = Machine(emulation)
    try:
        try:
            await _restore(emulation.control, template)
            _send_start(machine.bridge, spec.start)
            # What the guest puts on programs besides; it says so when it is ready.
            machine.layers = tuple(map(str, (await machine.bridge.wait_ready("a machine"))["confined_by"]))
        except StepFailedError as error:
            raise await emulation.explained(error, 0.2) from error
    except BaseException:
        await machine.close()
        raise
    return machine


async def _restore(channel: ControlChannel, template: MachineTemplate) -> None:
    await channel.greet()
    await channel.without_memory()
    with ExitStack() as stack:
        state = template.open_state()
        stack.callback(os.close, state)
        await channel.hand_over("state", state)
    await channel.migrate("migrate-incoming", "fd:state")
    await channel.call("cont")


def _send_start(bridge: Bridge, start: MachineStart) -> None:
    """The time is that of now; randomness is never used twice."""
    complete: MachineStart = {
        **start,
        "entropy": secrets.token_hex(ENTROPY_BYTES),
        "time_ns": time.time_ns(),
    }
    bridge.send_raw(with_length(json.dumps(complete).encode()))
    if start["fresh"]:
        bridge.send_raw(whole_guest({**complete, "entropy": secrets.token_hex(ENTROPY_BYTES)}))


async def _ran_out_of_memory(process: ConfinedProcess) -> bool:
    """Whether the kernel has taken QEMU itself, for what its cgroup may have."""
    answer = await process.wait(_END_SECONDS)
    trouble = (answer or {}).get("trouble")
    return bool(trouble and trouble["out_of_memory_kills"])
