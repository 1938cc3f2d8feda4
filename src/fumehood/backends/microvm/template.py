"""Templates: a machine that has booted and waits, as its memory and its state, from which every sandbox is a copy.

Made once for each kind of machine and kept on disk by content: image, guest, and all that describes the machine, QEMU's
own program included. A template of another build or another processor is never loaded: it has another name. In memory
it is a sealed file, which nobody can write to any more, QEMU included: copies map it privately.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import hashlib
import json
import os
import socket
import tempfile
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import anyio.to_thread

from fumehood.backends.microvm.confinement import Confinement, refuse_failed, start_confined
from fumehood.backends.microvm.image import MachineImage, make_folder
from fumehood.backends.microvm.machine import QEMU_MEMORY_BYTES, MachineDescription, qemu_argv
from fumehood.backends.microvm.qmp import ControlChannel
from fumehood.backends.relay import bootstrap
from fumehood.errors import StepFailedError
from fumehood.frozen import frozen
from fumehood.guest.contract import frames
from fumehood.guest.contract.machine_spec import ENTRY
from fumehood.host.folders import remove_folder
from fumehood.host.locks import lock_exclusive

RAM, STATE, FACTS = "ram", "state", "template.json"
MIB = 1024 * 1024
_BOOT_SECONDS = 180.0
_CHUNK_BYTES = 8 * MIB
_MOST_ON_DISK = 8
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
_NO_PACKAGES_BYTES = MIB


@frozen
class MachineTemplate:
    """Sealed files in memory. They stay as long as the process, and cost what the machine had in use."""

    machine: MachineDescription
    ram: int
    state: int

    def open_state(self) -> int:
        """A descriptor of its own, at the beginning."""
        return os.open(f"/proc/self/fd/{self.state}", os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        os.close(self.ram)
        os.close(self.state)


def template_key(image: MachineImage, machine: MachineDescription) -> str:
    """Of everything that the content of a template hangs on."""
    guest = hashlib.sha256(bootstrap.program().encode() + bootstrap.packed(None)).hexdigest()
    words = ("1", image.digest, machine.digest, guest, os.uname().machine)
    return hashlib.sha256(" ".join(words).encode()).hexdigest()


class MachineTemplates:
    """Those of this process, and those on disk. Belongs to the backend's event loop."""

    def __init__(self, confinement: Confinement) -> None:
        self._confinement = confinement
        self._open: dict[str, asyncio.Task[MachineTemplate]] = {}

    async def get(self, image: MachineImage, machine: MachineDescription) -> MachineTemplate:
        """The first caller for a kind of machine waits while it boots; a failure is tried again by the next one."""
        key = template_key(image, machine)
        task = self._open.get(key)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = self._open[key] = asyncio.ensure_future(self._make(key, image, machine))
        return await asyncio.shield(task)

    async def _make(self, key: str, image: MachineImage, machine: MachineDescription) -> MachineTemplate:
        folder = await anyio.to_thread.run_sync(make_folder, "templates")
        found = await anyio.to_thread.run_sync(load_template, folder / key, machine)
        if found is not None:
            return found
        lock = await anyio.to_thread.run_sync(lock_exclusive, folder / f"{key}.lock")
        with closing(lock):
            # Another process may have made it meanwhile.
            found = await anyio.to_thread.run_sync(load_template, folder / key, machine)
            if found is not None:
                return found
            template = await _boot(self._confinement, image, machine)
            await anyio.to_thread.run_sync(save_template, folder, key, template)
            return template

    async def close(self) -> None:
        for task in self._open.values():
            task.cancel()
        for result in await asyncio.gather(*self._open.values(), return_exceptions=True):
            if isinstance(result, MachineTemplate):
                result.close()
        self._open.clear()


async def _boot(confinement: Confinement, image: MachineImage, machine: MachineDescription) -> MachineTemplate:
    """A machine from its first instruction to the moment at which its guest waits for what makes it a sandbox."""
    with ExitStack() as stack:
        ram = os.memfd_create("ram", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        stack.callback(os.close, ram)
        os.ftruncate(ram, machine.ram_bytes)
        state = os.memfd_create("state", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        stack.callback(os.close, state)
        with ExitStack() as lines:
            ours, theirs = socket_pairs(lines, 3)
            disks = [open_file(image.root, lines), empty_disk(lines)]
            files = [_in_memory(image.kernel, lines), _in_memory(image.first_files, lines)]
            relay, control, errors = theirs
            handed = [ram, relay.fileno(), control.fileno(), errors.fileno(), *disks, *files]
            command = qemu_argv(machine, is_shared=True, is_restored=False)
            memory = machine.ram_bytes + QEMU_MEMORY_BYTES
            process = await start_confined(confinement, command, handed, memory_bytes=memory)
            try:
                for line in theirs:
                    line.close()
                async with asyncio.timeout(_BOOT_SECONDS):
                    await _wait_prepared(ours[0], ours[2])
                    channel = ControlChannel(ours[1])
                    await channel.greet()
                    await channel.call("stop")
                    await channel.call(
                        "migrate-set-capabilities", capabilities=[{"capability": "x-ignore-shared", "state": True}]
                    )
                    await channel.hand_over("state", state)
                    await channel.migrate("migrate", "fd:state")
            except TimeoutError as error:
                raise StepFailedError("booting a machine", f"it was not ready after {_BOOT_SECONDS:.0f} s") from error
            except (StepFailedError, ConnectionError) as error:
                answer = await process.wait(1.0)
                said = process.last_words()
                if answer is None and not said:
                    raise
                raise refuse_failed(answer, said or str(error)) from error
            finally:
                await process.close()
        for descriptor in (ram, state):
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
        stack.pop_all()
    return MachineTemplate(machine, ram, state)


async def _wait_prepared(relay: socket.socket, errors: socket.socket) -> None:
    """Sends the guest to the machine, and waits for its word."""
    loop, decoder = asyncio.get_running_loop(), frames.Decoder()
    program = bootstrap.program().encode()
    first = len(program).to_bytes(8, "big") + program + bootstrap.packed({"start": None}, ENTRY)
    await loop.sock_sendall(relay, first)
    while (message := decoder.next()) is None:
        data = await loop.sock_recv(relay, 65536)
        if not data:
            with suppress(BlockingIOError):
                data = errors.recv(4096)
            said = data.decode("utf-8", "replace").strip()
            raise StepFailedError("booting a machine", said or "it ended before its guest was ready")
        decoder.feed(data)
    header, _ = message
    if "prepared" not in header:
        raise StepFailedError(str(header.get("failed")), str(header.get("detail")))


def socket_pairs(stack: ExitStack, count: int) -> tuple[list[socket.socket], list[socket.socket]]:
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) for _ in range(count)]
    for ours, theirs in pairs:
        stack.enter_context(ours)
        stack.enter_context(theirs)
        ours.setblocking(False)
    return [ours for ours, _ in pairs], [theirs for _, theirs in pairs]


def open_file(path: Path, stack: ExitStack) -> int:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    stack.callback(os.close, descriptor)
    return descriptor


def empty_disk(stack: ExitStack) -> int:
    """In the place of packages, where there are none."""
    descriptor = os.memfd_create("disk", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    stack.callback(os.close, descriptor)
    os.ftruncate(descriptor, _NO_PACKAGES_BYTES)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    readable = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC)
    stack.callback(os.close, readable)
    return readable


def _in_memory(path: Path, stack: ExitStack) -> int:
    """A sealed copy: QEMU opens these by name, and in its sandbox has a name for memory alone."""
    descriptor = os.memfd_create(path.name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    stack.callback(os.close, descriptor)
    content = memoryview(path.read_bytes())
    while content:
        content = content[os.write(descriptor, content) :]
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    return descriptor


# On disk.


def load_template(folder: Path, machine: MachineDescription) -> MachineTemplate | None:
    """None where there is none, or one that is not complete."""
    try:
        facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
        if facts != {"ram_bytes": machine.ram_bytes, "state_bytes": (folder / STATE).stat().st_size}:
            return None
        os.utime(folder / FACTS)  # the ones that were used last are kept
        with ExitStack() as stack:
            copies: list[int] = []
            for name in (RAM, STATE):
                copies.append(os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING))
                stack.callback(os.close, copies[-1])
                with (folder / name).open("rb") as stream:
                    _copy_sparse(stream.fileno(), copies[-1])
                fcntl.fcntl(copies[-1], fcntl.F_ADD_SEALS, _SEALS)
            stack.pop_all()
    except (OSError, ValueError):
        return None
    return MachineTemplate(machine, copies[0], copies[1])


def save_template(folder: Path, key: str, template: MachineTemplate) -> None:
    """Complete or not at all. A disk that is full costs the next process a boot, and no more."""
    with suppress(OSError):
        draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=folder))
        try:
            for name, descriptor in ((RAM, template.ram), (STATE, template.state)):
                with (draft / name).open("wb") as stream:
                    _copy_sparse(descriptor, stream.fileno())
                (draft / name).chmod(0o400)
            facts = {"ram_bytes": template.machine.ram_bytes, "state_bytes": (draft / STATE).stat().st_size}
            (draft / FACTS).write_text(json.dumps(facts), encoding="utf-8")
            draft.rename(folder / key)
        except OSError:
            remove_folder(draft)
    _trim(folder)


def _trim(folder: Path) -> None:
    """Templates that were not used for longest go; so do drafts of processes that were killed."""
    kept: list[tuple[float, Path]] = []
    for place in folder.iterdir():
        with suppress(OSError):
            if place.name.startswith(".draft-") and time.time() - place.stat().st_mtime > 3600:
                remove_folder(place)
            elif (place / FACTS).exists():
                kept.append(((place / FACTS).stat().st_mtime, place))
    for _, place in sorted(kept)[:-_MOST_ON_DISK]:
        with suppress(OSError):
            remove_folder(place)


def _copy_sparse(source: int, target: int) -> None:
    """What is not there in the source takes no place in the target either."""
    size = os.fstat(source).st_size
    os.ftruncate(target, size)
    at = 0
    while at < size:
        try:
            at = os.lseek(source, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            raise
        end = os.lseek(source, at, os.SEEK_HOLE)
        os.lseek(target, at, os.SEEK_SET)
        while at < end:
            at += os.sendfile(target, source, at, min(_CHUNK_BYTES, end - at))
