"""Trials of a kernel of the sandbox's own: the host's is another, and what emulates the machine is confined."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from fumehood.proof.emulators import find_emulators, read_status
from fumehood.proof.laboratory import Laboratory, attempts
from fumehood.proof.program import require_refusals
from fumehood.proof.trial import BrokenError, NotTestedError, Trial, attack, use

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_LOOK = 'attempt("start", lambda: read(path).decode().strip())\nattempt("release", lambda: os.uname().release)'
# The machine's own disks, ports and memory: the way to whatever emulates them.
_DEVICES = ("/dev/vda", "/dev/vdb", "/dev/ttyS0", "/dev/hvc0", "/dev/vport0p1", "/dev/mem", "/dev/port", "/dev/kmsg")
_CALLS = {
    "x86_64": {"init_module": 175, "finit_module": 313, "kexec_load": 246, "reboot": 169, "iopl": 172, "ioperm": 173},
    "aarch64": {"init_module": 105, "finit_module": 273, "kexec_load": 104, "reboot": 142},
}
_CAPABILITIES = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")


@attack("kernel", "Find the kernel of the host, or that of another sandbox, by when it was started.")
async def find_another_kernel(lab: Laboratory) -> str:
    own = (await lab.attempts(_LOOK, path=_BOOT_ID))["start"]
    async with lab.sandbox() as box:
        other = (await attempts(box, _LOOK, path=_BOOT_ID))["start"]
    known = {_told(_host_start()): "the host", own: "this sandbox", other: "another sandbox"}
    if len(known) != 3:
        raise BrokenError(f"two of the host, this sandbox and another one have one kernel: {known}")
    return "the host, this sandbox and another one with the same policy have kernels that were started apart"


@attack("kernel", "Open the machine's disks, ports and memory, and make its kernel load code or start anew.")
async def take_over_the_machine(lab: Laboratory) -> str:
    calls = _CALLS.get(platform.machine())
    if calls is None:
        raise NotTestedError(f"the numbers of system calls on {platform.machine()} are not known to the trial")
    code = """
    for path in devices:
        attempt(path, lambda: os.close(os.open(path, os.O_RDWR)))
    for name, number in calls.items():
        attempt(name, lambda: call(number, 0, 0, 0, 0, 0))
    """
    tried = await lab.attempts(code, devices=_DEVICES, calls=calls)
    return require_refusals(tried, [*_DEVICES, *calls])


@attack("kernel", "Take the place of the emulator: whoever breaks out of the machine is in a sandbox still.")
async def be_the_emulator(lab: Laboratory) -> str:
    async with lab.sandbox() as box:
        await box.run("")
        statuses = [read_status(process) for process in find_emulators()]
    found = [status for status in statuses if status]  # a copy that waited may have ended meanwhile
    if not found:
        raise NotTestedError("no emulator was found among the processes that descend from this one")
    for status in found:
        rights = {name: status[name] for name in _CAPABILITIES if status[name].strip("0")}
        is_apart = len(status["NSpid"].split()) > len(read_status(os.getpid())["NSpid"].split())
        if rights or not is_apart or (status["NoNewPrivs"], status["Seccomp"]) != ("1", "2"):
            raise BrokenError(f"an emulator is not confined: {status}")
        if os.geteuid() == 0 and status["Uid"].split()[0] == "0":
            raise BrokenError("an emulator is root on the host")
    return f"{len(found)} emulators: no capability, a system call filter, no new privileges, processes of their own"


@use("kernel", "Run a program on a kernel of the machine's own.")
async def run_in_the_machine(lab: Laboratory) -> str:
    tried = await lab.attempts(_LOOK, path=_BOOT_ID)
    if tried["start"] == _told(_host_start()):
        raise BrokenError("the program runs on the kernel of the host")
    return f"kernel inside: {tried['release'].removeprefix('got: ')}; outside: {os.uname().release}"


def _host_start() -> str:
    return Path(_BOOT_ID).read_text(encoding="ascii").strip()


def _told(value: str) -> str:
    """As a program tells it."""
    return f"got: {value!r}"


TRIALS: tuple[Trial, ...] = (find_another_kernel, take_over_the_machine, be_the_emulator, run_in_the_machine)
