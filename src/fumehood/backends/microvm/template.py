"""Templates: a machine that has booted and waits, as its memory and its state, from which every sandbox is a copy.

Made once for each kind of machine and kept on disk by content: image, guest, and all that describes the machine, QEMU's
own program included. A template of another build or another processor is never loaded: it has another name. In memory
it is a sealed file, which nobody can write to any more, QEMU included: copies map it privately.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import os
import socket
import tempfile
import time
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path

import anyio.to_thread

from fumehood.backends.microvm.confinement import Confinement
from fumehood.backends.microvm.image import MachineImage, make_folder
from fumehood.backends.microvm.launch import launch, memory_file, seal
from fumehood.backends.microvm.machine import MIB, MachineDescription
from fumehood.backends.microvm.qmp import ControlChannel
from fumehood.backends.relay import bootstrap
from fumehood.concurrency.threads import run_whole
from fumehood.errors import StepFailedError
from fumehood.frozen import frozen
from fumehood.guest.contract import frames
from fumehood.guest.contract.machine_spec import ENTRY, MachineStart
from fumehood.host.folders import remove_folder
from fumehood.host.locks import Lock, lock_exclusive

RAM, STATE, FACTS = "ram", "state", "template.json"
_BOOT_SECONDS = {"tcg": 180.0, "kvm": 30.0}
_CHUNK_BYTES = 8 * MIB
_MOST_ON_DISK = 8


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
        load = partial(load_template, folder / key, machine)
        found = await run_whole(load, _close)
        if found is not None:
            return found
        lock = await run_whole(partial(lock_exclusive, folder / f"{key}.lock"), Lock.close)
        with closing(lock):
            # Another process may have made it meanwhile.
            found = await run_whole(load, _close)
            if found is not None:
                return found
            template = await boot(self._confinement, image, machine)
            try:
                await run_whole(partial(save_template, folder, key, template), lambda _: None)
            except BaseException:
                template.close()
                raise
            return template

    async def close(self) -> None:
        for task in self._open.values():
            task.cancel()
        for result in await asyncio.gather(*self._open.values(), return_exceptions=True):
            if isinstance(result, MachineTemplate):
                result.close()
        self._open.clear()


def _close(template: MachineTemplate | None) -> None:
    if template is not None:
        template.close()


async def boot(confinement: Confinement, image: MachineImage, machine: MachineDescription) -> MachineTemplate:
    """A machine from its first instruction to the moment at which its guest waits for what makes it a sandbox."""
    with ExitStack() as stack:
        ram, state = memory_file(RAM, stack), memory_file(STATE, stack)
        os.ftruncate(ram, machine.ram_bytes)
        emulation = await launch(confinement, machine, image, ram, boots=True)
        try:
            async with asyncio.timeout(_BOOT_SECONDS[machine.accelerator]):
                await _wait_prepared(emulation.relay, emulation.errors)
                await _keep_state(emulation.control, state)
        except TimeoutError as error:
            seconds = _BOOT_SECONDS[machine.accelerator]
            raise StepFailedError("booting a machine", f"it was not ready after {seconds:.0f} s") from error
        except StepFailedError as error:
            raise await emulation.explained(error, 1.0) from error
        finally:
            await emulation.close()
        for descriptor in (ram, state):
            seal(descriptor)
        stack.pop_all()
    return MachineTemplate(machine, ram, state)


async def _keep_state(channel: ControlChannel, state: int) -> None:
    """All but the memory, which is in its file already."""
    await channel.greet()
    await channel.call("stop")
    await channel.without_memory()
    await channel.hand_over("state", state)
    await channel.migrate("migrate", "fd:state")


def whole_guest(start: MachineStart | None) -> bytes:
    """What an interpreter on a machine's serial port becomes the guest by; without a start it prepares, and waits."""
    return with_length(bootstrap.program().encode()) + bootstrap.packed({"start": start}, ENTRY)


def with_length(text: bytes) -> bytes:
    return len(text).to_bytes(8, "big") + text


async def _wait_prepared(relay: socket.socket, errors: socket.socket) -> None:
    """Sends the guest to the machine, and waits for its word."""
    loop, decoder = asyncio.get_running_loop(), frames.Decoder()
    with suppress(ConnectionError):  # which reading finds, too
        await loop.sock_sendall(relay, whole_guest(None))
    while (message := decoder.next()) is None:
        data = b""
        with suppress(ConnectionError):  # QEMU has ended
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


# On disk.


def load_template(folder: Path, machine: MachineDescription) -> MachineTemplate | None:
    """None where there is none, or one that is not complete."""
    try:
        facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
        sizes = {"ram_bytes": (folder / RAM).stat().st_size, "state_bytes": (folder / STATE).stat().st_size}
        if facts != sizes or sizes["ram_bytes"] != machine.ram_bytes:
            return None
        os.utime(folder / FACTS)  # the ones that were used last are kept
        with ExitStack() as stack:
            copies: list[int] = []
            for name in (RAM, STATE):
                copies.append(memory_file(name, stack))
                with (folder / name).open("rb") as stream:
                    _copy_sparse(stream.fileno(), copies[-1])
                seal(copies[-1])
            stack.pop_all()
    except (OSError, ValueError):
        return None
    return MachineTemplate(machine, copies[0], copies[1])


def save_template(folder: Path, key: str, template: MachineTemplate) -> None:
    """Complete or not at all, also when the host loses its power: sizes alone would be there before the content, and
    no machine would ever start from that. A disk that is full costs the next process a boot, and no more."""
    with suppress(OSError):
        draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=folder))
        try:
            for name, descriptor in ((RAM, template.ram), (STATE, template.state)):
                with (draft / name).open("wb") as stream:
                    _copy_sparse(descriptor, stream.fileno())
                    os.fsync(stream.fileno())
                (draft / name).chmod(0o400)
            facts = {"ram_bytes": template.machine.ram_bytes, "state_bytes": (draft / STATE).stat().st_size}
            with (draft / FACTS).open("w", encoding="utf-8") as stream:
                json.dump(facts, stream)
                stream.flush()
                os.fsync(stream.fileno())
            remove_folder(folder / key)  # what is there could not be loaded, and would stay for ever
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
            copied = os.sendfile(target, source, at, min(_CHUNK_BYTES, end - at))
            if not copied:
                raise OSError(errno.EIO, "the file has become shorter")
            at += copied
