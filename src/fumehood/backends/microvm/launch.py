"""Starts QEMU for a machine, with everything that it is handed: memory, sockets to the host, disks, a kernel."""

from __future__ import annotations

import fcntl
import os
import socket
from contextlib import ExitStack
from pathlib import Path

from fumehood.backends.microvm.confinement import ConfinedProcess, Confinement, start_confined
from fumehood.backends.microvm.image import FIRST_FILES, KERNEL, ROOT, MachineImage
from fumehood.backends.microvm.machine import KVM_DEVICE, MIB, QEMU_MEMORY_BYTES, MachineDescription, qemu_argv
from fumehood.backends.microvm.qmp import ControlChannel
from fumehood.errors import StepFailedError
from fumehood.tenant import LOCAL, Tenant

_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
_NO_PACKAGES_BYTES = MIB


class Emulation:
    """QEMU under way, and the host's ends of its sockets. Belongs to one event loop."""

    def __init__(self, process: ConfinedProcess, relay: socket.socket, control: socket.socket, errors: socket.socket):
        self.process, self.relay, self.errors = process, relay, errors
        self.control = ControlChannel(control)

    async def explained(self, error: StepFailedError, seconds: float) -> StepFailedError:
        """The error that the caller has seen, or what QEMU and its sandbox wrote when they ended, if they did."""
        answer = await self.process.wait(seconds)
        said = self.process.last_words()
        if answer and "failed" in answer:
            return StepFailedError(answer["failed"], answer["detail"])
        return StepFailedError("starting QEMU", f"{error.detail} {said}".strip()) if answer or said else error

    async def close(self) -> None:
        """Kills it. When this returns nothing of it is left."""
        self.relay.close()
        self.errors.close()
        self.control.close()
        await self.process.close()


async def launch(
    confinement: Confinement,
    machine: MachineDescription,
    image: MachineImage,
    ram: int,
    *,
    boots: bool,
    packages: Path | None = None,
    cpus: float = 1.0,
    tenant: Tenant = LOCAL,
) -> Emulation:
    """`boots`: from its first instruction, and with `ram` to keep what it writes. Else it waits for a state."""
    with ExitStack() as ours, ExitStack() as theirs:
        lines: list[socket.socket] = []
        handed = [ram]
        for _ in range(3):
            line, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
            lines.append(ours.enter_context(line))
            line.setblocking(False)
            handed.append(theirs.enter_context(other).fileno())
        handed.append(_closing(image.open(ROOT), theirs))
        handed.append(_open(packages, theirs) if packages else _empty_disk(theirs))
        if boots:
            handed += [_in_memory(image, name, theirs) for name in (KERNEL, FIRST_FILES)]
        if machine.accelerator == "kvm":
            handed.append(_open(Path(KVM_DEVICE), theirs, os.O_RDWR))
        process = await start_confined(
            confinement,
            qemu_argv(machine, boots=boots),
            handed,
            memory_bytes=machine.ram_bytes + QEMU_MEMORY_BYTES,
            cpus=cpus,
            tenant=tenant,
        )
        ours.pop_all()
    return Emulation(process, *lines)


def memory_file(name: str, stack: ExitStack) -> int:
    """A file in memory that can be sealed."""
    return _closing(os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), stack)


def seal(descriptor: int) -> None:
    """From here on nobody can write to it."""
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)


def _closing(descriptor: int, stack: ExitStack) -> int:
    stack.callback(os.close, descriptor)
    return descriptor


def _open(path: Path, stack: ExitStack, access: int = os.O_RDONLY) -> int:
    return _closing(os.open(path, access | os.O_CLOEXEC), stack)


def _empty_disk(stack: ExitStack) -> int:
    """In the place of packages, where there are none."""
    descriptor = memory_file("disk", stack)
    os.ftruncate(descriptor, _NO_PACKAGES_BYTES)
    seal(descriptor)
    return _open(Path(f"/proc/self/fd/{descriptor}"), stack)


def _in_memory(image: MachineImage, name: str, stack: ExitStack) -> int:
    """A sealed copy: QEMU opens these by name, and in its sandbox has a name for memory alone."""
    descriptor = memory_file(name, stack)
    with open(image.open(name), "rb") as stream:
        content = memoryview(stream.read())
    while content:
        content = content[os.write(descriptor, content) :]
    seal(descriptor)
    return descriptor
