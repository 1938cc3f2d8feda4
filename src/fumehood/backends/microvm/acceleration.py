"""Whether machines run by hardware (KVM) or by software (TCG) here. A device file is no proof: a machine is tried.

What a trial showed is kept until the host starts anew, in one small file beside the templates.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import anyio.to_thread

from fumehood.backends.microvm.image import MachineImage, make_folder
from fumehood.backends.microvm.machine import KVM_DEVICE, Accelerator, Emulator
from fumehood.errors import FumehoodError, StepFailedError
from fumehood.frozen import frozen

_RESULT = "kvm.json"
_CPU_FACTS = ("vendor_id", "cpu family", "model", "model name", "stepping", "microcode", "flags")


@frozen
class Acceleration:
    accelerator: Accelerator
    reason: str = ""
    """Why it is software."""


def choose(device_problem: str | None, trial_problem: str | None) -> Acceleration:
    """By hardware only where the device can be opened and a machine has run with it."""
    if device_problem is not None:
        return Acceleration("tcg", f"{KVM_DEVICE}: {device_problem}")
    if trial_problem is not None:
        return Acceleration("tcg", f"a machine that was tried with KVM did not run: {trial_problem}")
    return Acceleration("kvm")


def device_problem(path: str = KVM_DEVICE) -> str | None:
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        return error.strerror or str(error)
    return None


def processor_identity(cpuinfo: str) -> str:
    """A machine by hardware has the host's processor: its template can be continued on an equal one only."""
    lines = (line.partition(":") for line in cpuinfo.split("\n\n")[0].splitlines())
    facts = {name.strip(): value.strip() for name, _, value in lines if name.strip() in _CPU_FACTS}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def host_processor() -> str:
    return processor_identity(Path("/proc/cpuinfo").read_text(encoding="utf-8"))


def trial_key(image: MachineImage, emulator: Emulator, processor: str, boot: str) -> str:
    return hashlib.sha256(" ".join((image.digest, emulator.build, processor, boot)).encode()).hexdigest()


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


class Trials:
    """Tries each image once, with `attempt`, which raises what is wrong. Belongs to the backend's event loop."""

    def __init__(self, attempt: Callable[[MachineImage, Emulator], Awaitable[None]], device: str = KVM_DEVICE) -> None:
        self._attempt, self._device = attempt, device
        self._found: dict[tuple[str, str], asyncio.Task[Acceleration]] = {}

    async def choose(self, image: MachineImage, emulator: Emulator) -> Acceleration:
        key = (image.digest, emulator.build)
        task = self._found.get(key)
        if task is None or task.cancelled():
            task = self._found[key] = asyncio.ensure_future(self._try(image, emulator))
        return await asyncio.shield(task)

    async def _try(self, image: MachineImage, emulator: Emulator) -> Acceleration:
        problem = device_problem(self._device)
        if problem is not None:
            return choose(problem, None)
        file = await anyio.to_thread.run_sync(make_folder, "templates") / _RESULT
        key = trial_key(image, emulator, host_processor(), _boot())
        known = _read(file)
        if known.get("key") == key:
            return choose(None, known.get("problem"))
        try:
            await self._attempt(image, emulator)
        except StepFailedError as error:
            problem = error.detail
        except (FumehoodError, OSError) as error:
            problem = str(error)
        with suppress(OSError):  # the next process tries again
            _write(file, {"key": key, "problem": problem})
        return choose(None, problem)

    async def close(self) -> None:
        for task in self._found.values():
            task.cancel()
        await asyncio.gather(*self._found.values(), return_exceptions=True)


def forget() -> None:
    """The next machine is tried again, whatever was found before."""
    with suppress(OSError):
        (make_folder("templates") / _RESULT).unlink()


def _read(file: Path) -> dict[str, str | None]:
    """A file of this user's own, in a folder that no other can write to."""
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def _write(file: Path, found: dict[str, str | None]) -> None:
    draft = file.with_name(f".draft-{os.getpid()}-{file.name}")
    draft.write_text(json.dumps(found), encoding="utf-8")
    draft.replace(file)
