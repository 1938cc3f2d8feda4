"""The description of a machine, and the command line of QEMU for it. Pure, but for finding QEMU.

Its devices are two read-only disks and two serial ports, and nothing else that the machine's own chipset does not
bring: no network, no shared folder, no display, no clipboard. All files come as descriptors, KVM's device included.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from functools import cache
from pathlib import Path
from typing import Literal

from fumehood.errors import SandboxError
from fumehood.frozen import frozen

MIB = 1024 * 1024
# Where QEMU finds what it was handed, after its standard streams; the device of KVM comes last, where it is used.
RAM, RELAY, CONTROL, ERRORS, ROOT, PACKAGES, KERNEL, FIRST_FILES = range(3, 11)
INSTALL = "`sudo apt-get install qemu-system-x86`"
KVM_DEVICE = "/dev/kvm"
Accelerator = Literal["kvm", "tcg"]
_PROGRAM = "qemu-system-x86_64"
# All that TCG has of it works, in every release; numeric libraries need no more.
_SOFTWARE_CPU = "Nehalem"
_TRANSLATION_MIB = 64
# Of descriptors, beside those of the two disks.
_KVM_SET = 3
# What QEMU takes besides the machine's memory: itself, its translated code, and buffers.
QEMU_MEMORY_BYTES = (_TRANSLATION_MIB + 128) * MIB
# What the kernel and the guest of a machine take of its memory.
GUEST_MEMORY_BYTES = 128 * MIB
_SMALLEST_BYTES = 128 * MIB
# The older chipset (`pc`) brings a floppy drive, IDE and memories of a bus, none of which can be left out.
_CHIPSET = "q35"
_CHIPSET_WITHOUT = "sata=off,smbus=off,usb=off,vmport=off,hpet=off,smm=off,i8042=off"
# Pages that the host's kernel shares between machines with equal content tell by their time what another one has.
_MEMORY_APART = "mem-merge=off,dump-guest-core=off"
_QUIET = (
    "quiet panic=-1 reboot=t tsc=reliable no_timer_check cryptomgr.notests rcupdate.rcu_expedited=1 8250.nr_uarts=0"
)
# A processor of software does not speculate, and what stands against that would make every system call slow.
_QUIET_IN_SOFTWARE = f"{_QUIET} mitigations=off"


class MachineryMissingError(SandboxError):
    """There is no QEMU here that could run a machine."""


@frozen
class Emulator:
    """QEMU as it is installed here. A copy of a machine can be continued by the same build only."""

    program: str
    build: str
    """The digest of the program."""


@frozen
class MachineDescription:
    """All that decides what a machine is like to its kernel. Two with equal descriptions can continue each other."""

    emulator: Emulator
    accelerator: Accelerator
    cpu: str
    ram_bytes: int
    processor: str = ""
    """The identity of the host's processor, where it is the machine's, too."""

    @property
    def digest(self) -> str:
        words = (self.emulator.build, self.processor, *qemu_argv(self, boots=True))
        return hashlib.sha256("\0".join(words).encode()).hexdigest()


def find_emulator() -> Emulator:
    program = shutil.which(_PROGRAM, path="/usr/bin:/usr/local/bin:/bin")
    if program is None:
        raise MachineryMissingError(f"a machine runs in QEMU, and there is no {_PROGRAM} in /usr/bin: {INSTALL}.")
    path = os.path.realpath(program)
    details = os.stat(path)
    return Emulator(path, _build_of(path, details.st_size, details.st_mtime_ns, details.st_ino))


@cache
def _build_of(path: str, size: int, changed_ns: int, inode: int) -> str:
    """The numbers tell whether it is still the same file."""
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def describe(emulator: Emulator, memory_bytes: int, processor: str | None = None) -> MachineDescription:
    """For programs with so much memory: its own is the next power of two, and what the guest takes.

    By hardware with the identity of the host's processor, by software without.
    """
    ram = _SMALLEST_BYTES
    while ram < memory_bytes:
        ram *= 2
    ram += GUEST_MEMORY_BYTES
    if processor is None:
        return MachineDescription(emulator, "tcg", _SOFTWARE_CPU, ram)
    return MachineDescription(emulator, "kvm", "host", ram, processor)


def qemu_argv(machine: MachineDescription, *, boots: bool) -> list[str]:
    """`boots`: what it writes to its memory is written to the file. Else the memory is its own, and it waits for a
    state."""
    words = [machine.emulator.program, "-no-user-config", "-nodefaults", "-display", "none", "-no-reboot"]
    words += ["-M", f"{_CHIPSET},memory-backend=ram,{_CHIPSET_WITHOUT},{_MEMORY_APART}"]
    words += [*_acceleration(machine, boots=boots), "-cpu", machine.cpu, "-smp", "1"]
    size, share = f"{machine.ram_bytes // MIB}M", "on" if boots else "off"
    words += ["-m", size]
    words += ["-object", f"memory-backend-file,id=ram,size={size},mem-path=/proc/self/fd/{RAM},share={share}"]
    # First, so that the guest's kernel counts it first.
    words += ["-device", "virtio-serial-pci,max_ports=3"]
    for number, (name, descriptor) in enumerate((("relay", RELAY), ("errors", ERRORS)), 1):
        words += ["-chardev", f"socket,id={name},fd={descriptor}"]
        words += ["-device", f"virtserialport,chardev={name},nr={number}"]
    for number, (name, descriptor) in enumerate((("root", ROOT), ("packages", PACKAGES)), 1):
        words += ["-add-fd", f"fd={descriptor},set={number}"]
        words += [
            "-blockdev",
            f"driver=file,node-name={name}-file,filename=/dev/fdset/{number},read-only=on,locking=off",
        ]
        words += ["-blockdev", f"driver=raw,node-name={name},file={name}-file,read-only=on"]
        words += ["-device", f"virtio-blk-pci,drive={name}"]
    words += ["-chardev", f"socket,id=control,fd={CONTROL}", "-mon", "chardev=control,mode=control"]
    if not boots:
        return [*words, "-incoming", "defer"]
    words += ["-kernel", f"/proc/self/fd/{KERNEL}", "-initrd", f"/proc/self/fd/{FIRST_FILES}"]
    return [*words, "-append", _QUIET if machine.accelerator == "kvm" else _QUIET_IN_SOFTWARE]


def _acceleration(machine: MachineDescription, *, boots: bool) -> list[str]:
    """QEMU has no file of the host by its name: one that cannot be handed KVM's device runs no machine with it."""
    if machine.accelerator == "tcg":
        return ["-accel", f"tcg,thread=multi,tb-size={_TRANSLATION_MIB}"]
    descriptor = FIRST_FILES + 1 if boots else KERNEL
    return ["-add-fd", f"fd={descriptor},set={_KVM_SET}", "-accel", f"kvm,device=/dev/fdset/{_KVM_SET}"]
