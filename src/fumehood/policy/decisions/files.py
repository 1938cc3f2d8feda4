"""Reading and writing files: the policy's mounts, the sandbox's own folders, and what every sandbox shows.

Lexical, as the policy's paths are: whether a file exists, or this user may read it, shows only in a real sandbox. Says
that something is closed only where that is sure: /proc is open but for what is covered or root's alone. The image of a
container may show more of its own (never of the host); only a real sandbox can tell.
"""

from __future__ import annotations

import json
import re

from fumehood.host.interpreter import PACKAGES_PLACE, own_interpreter
from fumehood.policy.decision import Decision
from fumehood.policy.filesystem import Mount
from fumehood.policy.model import Policy
from fumehood.policy.paths import SYSTEM_PATHS, USER_HOME, WORKSPACE, is_inside
from fumehood.policy.quantities import format_size

# Memory of the sandbox's own: made anew, gone with it.
OWN = (WORKSPACE, USER_HOME, "/tmp", "/var/tmp", "/dev/shm", "/run")
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

# What YAML takes as it is, in braces too.
_PLAIN = re.compile(r"/[A-Za-z0-9/._+@~-]*", re.ASCII)


def decide_read(policy: Policy, path: str) -> Decision[str]:
    attempt = f"read {path}"
    if mount := _mount_of(policy, path):
        return Decision(attempt, True, f"{mount.source} is mounted at {mount.target}", _key(mount))
    if why := _shown(policy, path):
        return Decision(attempt, True, why)
    return _hidden(attempt, path, "")


def decide_write(policy: Policy, path: str) -> Decision[str]:
    attempt = f"write {path}"
    if mount := _mount_of(policy, path):
        if mount.mode == "rw":
            return Decision(attempt, True, f"{mount.source} is mounted at {mount.target}, to be written", _key(mount))
        why, remedy = f"{mount.source} is mounted read-only at {mount.target}", f"set mode: rw in {_key(mount)}"
        return Decision(attempt, False, why, _key(mount), remedy)
    if is_in_any(path, OWN):
        return Decision(attempt, True, _own_words(policy, path))
    if is_in_any(path, DEVICES) or is_own_descriptor(path):
        return Decision(attempt, True, "it is a device of the sandbox's own, or what one of its processes has open")
    if _shown(policy, path):
        return Decision(attempt, False, "the sandbox shows it, and nothing there can be written")
    return _hidden(attempt, path, ", mode: rw")


def _mount_of(policy: Policy, path: str) -> Mount | None:
    return next((mount for mount in policy.filesystem.mounts if is_inside(path, mount.target)), None)


def _key(mount: Mount) -> str:
    return f"filesystem.mounts[{mount.target}]"


def _own_words(policy: Policy, path: str) -> str:
    if is_in_any(path, (WORKSPACE, USER_HOME)):
        return f"it is in the workspace, which holds {format_size(policy.workspace_bytes)}"
    return f"it is in a scratch folder of the run's own, which holds {format_size(policy.resources.disk)}"


def _shown(policy: Policy, path: str) -> str:
    """Why a path can be read although no mount has it; empty when it cannot."""
    if is_in_any(path, OWN):
        return _own_words(policy, path)
    if is_inside(path, "/proc"):
        return "" if is_covered(path) else "/proc shows the sandbox's own processes"
    if is_in_any(path, (*SYSTEM, own_interpreter().prefix)):
        return "programs and libraries of the system are shown to every sandbox"
    if is_standard_file(path):
        return "it is one of the few that every sandbox has, with nothing of the host's in it"
    if _has_packages(policy) and is_inside(path, PACKAGES_PLACE):
        return "the packages of environment are there"
    return _on_the_way(policy, path)


def _on_the_way(policy: Policy, path: str) -> str:
    """A folder that leads to something shown can be listed, and lists nothing else."""
    shown = [mount.target for mount in policy.filesystem.mounts]
    shown += [*OWN, *SYSTEM, *FILES_OF_ETC, *DEVICES, own_interpreter().prefix]
    if _has_packages(policy):
        shown.append(PACKAGES_PLACE)
    return "it is a folder that leads to something shown" if any(is_inside(place, path) for place in shown) else ""


def _has_packages(policy: Policy) -> bool:
    return bool(policy.environment.packages) or policy.environment.requirements is not None


def _hidden(attempt: str, path: str, mode: str) -> Decision[str]:
    for owned in SYSTEM_PATHS:
        if is_inside(path, owned):
            why = f"{owned} is the sandbox's own and does not have it, whatever a policy says"
            return Decision(attempt, False, why)
    written = path if _PLAIN.fullmatch(path) else json.dumps(path, ensure_ascii=False)
    remedy = f"add {{source: {written}, target: {written}{mode}}} to filesystem.mounts"
    return Decision(attempt, False, "nothing is mounted there", "filesystem.mounts", remedy)


def is_in_any(path: str, folders: tuple[str, ...]) -> bool:
    return any(is_inside(path, folder) for folder in folders)


def is_standard_file(path: str) -> bool:
    """One of the few files and devices that programs expect to find anywhere."""
    return is_in_any(path, (*FILES_OF_ETC, *DEVICES)) or _JAVA.fullmatch(path) is not None


def is_covered(path: str) -> bool:
    return is_in_any(path, tuple(f"/proc/{name}" for name in COVERED_IN_PROC))


def is_own_descriptor(path: str) -> bool:
    """Whether the path is an open descriptor in /proc, where only the sandbox's processes are."""
    return _DESCRIPTOR.fullmatch(path) is not None
