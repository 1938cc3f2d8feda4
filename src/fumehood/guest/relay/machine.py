"""Process 1 of a machine: makes it ready for its guest before it is copied, and each copy unlike the others afterwards.

It is started twice over: when a template is made it prepares what no policy changes, says so, and waits; the machine is
stopped and copied while it waits. What arrives next, in each copy, is its start: fresh randomness, the time, a name,
and then everything that a container's guest is told. From there on it is `service`.
"""

from __future__ import annotations

import fcntl
import gc
import json
import os
import socket
import stat
import struct
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import NoReturn

from ..contract import frames
from ..contract.machine_spec import PACKAGES_DISK, MachineSpec, MachineStart
from ..contract.paths import GUEST_FOLDER, WORKSPACE
from ..contract.preload import USUAL_MODULES
from ..isolation import kernel
from ..isolation.steps import StepError, step
from . import process_group, service
from .isolation import relay_filter

_HARMLESS = kernel.MS_NOSUID | kernel.MS_NODEV
_DEVICES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9), "tty": (5, 0)}
_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
    "ptmx": "pts/ptmx",
}
_DRIVER = "/sys/bus/virtio/drivers/virtio_blk"
_PACKAGES = "/opt/environment"
_SCRATCH = f"{GUEST_FOLDER}/scratch"
_ADD_ENTROPY, _RESEED = 0x40085203, 0x5207


def main(spec: MachineSpec, rest: bytes) -> NoReturn:
    """Never returns: when process 1 ends, so does the machine."""
    try:
        start = spec["start"]
        if start is None:
            prepare()
            _tell({"prepared": list(sys.version_info[:2])})
            start = _read_start()
            if start["fresh"]:
                # The kernel draws the new one's seeds, and all copies have the kernel's state until now.
                with step("renewing randomness"):
                    _renew_randomness(bytes.fromhex(start["entropy"]))
                # The host sends all of the guest again, and this start once more.
                os.execv(sys.executable, sys.orig_argv)
        begin(start)
        service.main(start["relay"], rest)
    except StepError as error:
        _tell(error.as_message())
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        os._exit(1)


def prepare() -> None:
    """What is the same for every policy: file systems, devices, the loopback, and modules that programs use."""
    with step("mounting the machine's file systems"):
        kernel.mount("proc", "/proc", "proc", _HARMLESS | kernel.MS_NOEXEC, "hidepid=2")
        kernel.mount("sysfs", "/sys", "sysfs", _HARMLESS | kernel.MS_NOEXEC)
        kernel.mount("guest", GUEST_FOLDER, "tmpfs", _HARMLESS, "mode=700,size=1m")
        _replace_devices()
    with step("letting the packages' disk go"):
        _write(f"{GUEST_FOLDER}/disk", _device_of(PACKAGES_DISK))
        _write(f"{_DRIVER}/unbind", _device_of(PACKAGES_DISK))
    with step("closing the kernel to further code"):
        _write("/proc/sys/kernel/modules_disabled", "1")
        _write("/proc/sys/kernel/kexec_load_disabled", "1")
        _write("/proc/sys/kernel/dmesg_restrict", "1")
        _write("/proc/sys/kernel/kptr_restrict", "2")
        _write("/proc/sys/kernel/unprivileged_bpf_disabled", "1")
        _write("/proc/sys/user/max_user_namespaces", "0")
    with step("raising the loopback device"), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        fcntl.ioctl(line, kernel.SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", kernel.IFF_UP))
    process_group.prepare(process_group.MACHINE)
    for name in USUAL_MODULES:
        __import__(name)
    for executes_files_only in (False, True):
        relay_filter((), executes_files_only=executes_files_only)
    # Nothing of this has to be looked through again, in any copy.
    gc.collect()
    gc.freeze()


def _replace_devices() -> None:
    """The kernel's own list has the machine's disks, memory and ports in it; what is here is what programs may see."""
    kernel.unmount("/dev")
    kernel.mount("dev", "/dev", "tmpfs", kernel.MS_NOSUID, "mode=755,size=64k")
    usual = os.umask(0)
    for name, (major, minor) in _DEVICES.items():
        os.mknod(f"/dev/{name}", stat.S_IFCHR | 0o666, os.makedev(major, minor))
    os.umask(usual)
    for name, target in _LINKS.items():
        os.symlink(target, f"/dev/{name}")
    for name in ("pts", "shm", "mqueue"):
        os.mkdir(f"/dev/{name}")
    pts = kernel.MS_NOSUID | kernel.MS_NOEXEC
    kernel.mount("devpts", "/dev/pts", "devpts", pts, "newinstance,ptmxmode=0666,mode=620")
    kernel.mount("mqueue", "/dev/mqueue", "mqueue", _HARMLESS | kernel.MS_NOEXEC)
    kernel.mount("none", "/dev", flags=kernel.MS_REMOUNT | kernel.MS_NOSUID | kernel.MS_RDONLY)


def begin(start: MachineStart) -> None:
    """In every copy, before anything that a program could see."""
    with step("renewing randomness"):
        _renew_randomness(bytes.fromhex(start["entropy"]))
    with step("setting clock and name"):
        time.clock_settime_ns(time.CLOCK_REALTIME, start["time_ns"])
        socket.sethostname(start["host_name"])
    with step("mounting the sandbox's folders"):
        flags = _HARMLESS | (0 if start["executes"] else kernel.MS_NOEXEC)
        kernel.mount("workspace", WORKSPACE, "tmpfs", flags, start["workspace"])
        _mount_scratch(start, flags)
    if start["has_packages"]:
        with step("mounting the packages' disk"):
            _mount_packages()
    with step("limiting memory"):
        process_group.limit_memory(start["memory_bytes"])
    kernel.unmount("/sys")
    with step("dropping capabilities"), open("/proc/sys/kernel/cap_last_cap", encoding="ascii") as stream:
        # The guest keeps its own as long as it executes nothing; no program can have any.
        for capability in range(int(stream.read()) + 1):
            kernel.set_option(kernel.PR_CAPBSET_DROP, capability)


def _mount_scratch(start: MachineStart, flags: int) -> None:
    """Folders of one file system, so that one limit holds for all; a bind has the flags of what it shows."""
    os.mkdir(_SCRATCH)
    kernel.mount("scratch", _SCRATCH, "tmpfs", flags, start["scratch"])
    uid, gid = start["relay"]["user"] or (os.getuid(), os.getgid())
    for number, (target, mode) in enumerate(start["scratch_folders"].items()):
        folder = f"{_SCRATCH}/{number}"
        os.mkdir(folder)
        os.chown(folder, uid, gid)
        os.chmod(folder, mode)
        kernel.mount(folder, target, flags=kernel.MS_BIND)
    kernel.unmount(_SCRATCH)


def _renew_randomness(fresh: bytes) -> None:
    """All copies start with the same pool: what is added is counted as random, and used at once."""
    with open("/dev/urandom", "wb", buffering=0) as device:
        fcntl.ioctl(device, _ADD_ENTROPY, struct.pack(f"ii{len(fresh)}s", 8 * len(fresh), len(fresh), fresh))
        fcntl.ioctl(device, _RESEED)


def _mount_packages() -> None:
    """The driver looks at the disk again, which is another one than when the template was made."""
    with open(f"{GUEST_FOLDER}/disk", encoding="ascii") as stream:
        _write(f"{_DRIVER}/bind", stream.read())
    with open(f"/sys/block/{PACKAGES_DISK}/dev", encoding="ascii") as stream:
        major, minor = map(int, stream.read().split(":"))
    node = f"{GUEST_FOLDER}/{PACKAGES_DISK}"
    os.mknod(node, stat.S_IFBLK | 0o400, os.makedev(major, minor))
    # The guest's folder has no devices.
    kernel.mount("none", GUEST_FOLDER, flags=kernel.MS_REMOUNT | kernel.MS_NOSUID, data="mode=700,size=1m")
    kernel.mount(node, _PACKAGES, "erofs", _HARMLESS | kernel.MS_RDONLY)
    kernel.mount("none", GUEST_FOLDER, flags=kernel.MS_REMOUNT | _HARMLESS, data="mode=700,size=1m")


def _device_of(disk: str) -> str:
    return os.path.basename(os.path.realpath(f"/sys/block/{disk}/device"))


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as stream:
        stream.write(text)


def _tell(message: Mapping[str, object]) -> None:
    with suppress(OSError):
        os.write(1, frames.encode({"do": "told", **message}))


def _read_start() -> MachineStart:
    return json.loads(_take(int.from_bytes(_take(8), "big")))


def _take(size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = os.read(0, size - len(data))
        if not more:
            # The host is not there: it stops the machine, or will be there when it goes on.
            time.sleep(0.001)
        data += more
    return data
