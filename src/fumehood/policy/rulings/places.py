"""What every sandbox shows of files besides the policy's mounts.

Says that something is closed only where that is sure: /proc is open but for what is covered or root's alone. A
container's image may show more of its own (never of the host's); only a real sandbox can tell.
"""

from __future__ import annotations

import re

from fumehood.policy.paths import WORKSPACE, is_inside

# Memory of the sandbox's own: made anew, gone with it.
OWN = (WORKSPACE, "/tmp", "/var/tmp", "/dev/shm", "/run")
# Programs and libraries, read-only, and a folder with nothing in it.
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/var/empty")
_ETC = (
    *("passwd", "group", "hosts", "nsswitch.conf", "resolv.conf"),
    *("mtab", "os-release", "ld.so.cache", "alternatives", "python"),
)
_JAVA = re.compile(r"/etc/java-[^/]*-openjdk(?:/.*)?", re.DOTALL)
_DESCRIPTOR = re.compile(r"/proc/(?:self|thread-self|[0-9]+)(?:/task/[0-9]+)?/fd/[0-9]+")
_DEVICES = (
    *("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts"),
    *("fd", "stdin", "stdout", "stderr"),
)
# About the host: covered, or for root alone.
COVERED_IN_PROC = (
    *("cmdline", "config.gz", "diskstats", "interrupts", "kallsyms", "key-users", "keys", "locks"),
    *("modules", "partitions"),
    *("acpi", "bus", "driver", "fs", "irq", "pressure", "scsi", "tty"),
    *("kcore", "kmsg", "kpagecgroup", "kpagecount", "kpageflags", "slabinfo", "sysrq-trigger", "timer_list"),
    "vmallocinfo",
)
FILES_OF_ETC = tuple(f"/etc/{name}" for name in _ETC)
DEVICES = tuple(f"/dev/{name}" for name in _DEVICES)


def is_in_any(path: str, folders: tuple[str, ...]) -> bool:
    return any(is_inside(path, folder) for folder in folders)


def is_furniture(path: str) -> bool:
    """One of the few files and devices that programs expect to find anywhere."""
    return is_in_any(path, (*FILES_OF_ETC, *DEVICES)) or _JAVA.fullmatch(path) is not None


def is_covered(path: str) -> bool:
    return is_in_any(path, tuple(f"/proc/{name}" for name in COVERED_IN_PROC))


def is_own_descriptor(path: str) -> bool:
    """Of /proc: what a process has open, and a sandbox has only its own processes. The rest of it is not written."""
    return _DESCRIPTOR.fullmatch(path) is not None
