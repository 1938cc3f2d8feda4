"""Turns a policy into a container's configuration and the guest's settings. Pure but for mount sources."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fumehood.backends import program_env
from fumehood.backends.docker import profile
from fumehood.backends.docker.commands_folder import CommandsFolder
from fumehood.backends.docker.engine import EngineFacts, ImageFacts
from fumehood.backends.docker.interpreter import PLACE, LentInterpreter
from fumehood.backends.docker.users import ProgramUser
from fumehood.backends.executables import executables
from fumehood.backends.interface import PackageFolder
from fumehood.backends.mounts import existing_source, writable_mounts
from fumehood.backends.package_commands import COMMANDS, PROGRAM
from fumehood.backends.package_commands import PLACE as COMMANDS_PLACE
from fumehood.backends.relay import bootstrap
from fumehood.guest.contract.limits import MOST_TERMINALS, NO_CORE_DUMP, SUPERVISORS
from fumehood.guest.contract.paths import GUEST_FOLDER, RUN_FOLDER, WORKSPACE
from fumehood.guest.contract.preload import USUAL_MODULES
from fumehood.guest.contract.relay_spec import RelaySpec
from fumehood.host.interpreter import PACKAGES_PLACE
from fumehood.policy import Policy

HOSTNAME = "sandbox"
MIB = 1024 * 1024
# What the guest itself takes: its interpreter, and a supervisor for each run that is under way.
GUEST_MEMORY_BYTES = 32 * MIB
GUEST_PROCESSES = 2 + SUPERVISORS
# With a kernel of the container's own the guest is root to that kernel, without rights in the host's: it makes
# groups for runs and gives them to another user. No program gets any of this.
_GUEST_ROOT = "0:0"
_OWN_KERNEL_CAPABILITIES = ("DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID", "SYS_ADMIN")
# A guest that hears nothing for so long is alone; the host says something far more often.
PATIENCE_SECONDS = 60.0
KERNEL_MEMORY_BYTES = 160 * MIB
KERNEL_THREADS = 512
# What the guest may have open, and how much more than programs may: the kernel counts the descriptors that a user has
# under way between processes, and holds the count against the sender's own limit.
_OPEN_FILES = 4096
_MORE_OPEN_FILES = 1024
_PATH = ("/usr/local/bin", "/usr/bin", "/bin")
# What the guest itself imports when it is bound already, and can read no interpreter that is not the image's any more.
_FOR_GUEST = ("hashlib",)

# The engine's own, which naming any replaces; then what else anyone may read there that is about the host. Of /sys
# only the container's own cgroups are left, by whose counters the guest knows which limit a program ran into.
_ENGINE_MASKS = (
    "/proc/asound", "/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
    "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware",
)  # fmt: skip
_OUR_MASKS = (
    "/proc/cmdline", "/proc/config.gz", "/proc/diskstats", "/proc/interrupts", "/proc/kallsyms", "/proc/locks",
    "/proc/modules", "/proc/partitions", "/proc/bus", "/proc/driver", "/proc/fs", "/proc/irq", "/proc/pressure",
    "/proc/tty", "/proc/key-users", "/proc/sysrq-trigger", "/sys/block", "/sys/bus", "/sys/class", "/sys/dev",
    "/sys/devices",
    "/sys/hypervisor", "/sys/kernel", "/sys/module", "/sys/power", "/sys/fs/bpf", "/sys/fs/btrfs", "/sys/fs/ext4",
    "/sys/fs/f2fs", "/sys/fs/fuse", "/sys/fs/pstore", "/sys/fs/selinux", "/sys/fs/xfs", "/sys/fs/erofs",
    "/sys/fs/nilfs2", "/sys/fs/smackfs", "/sys/fs/resctrl",
)  # fmt: skip
_READ_ONLY = ("/proc/sys",)


@dataclass(frozen=True, slots=True)
class Design:
    """All that decides what a container is like: two with equal designs are interchangeable."""

    policy: Policy
    facts: EngineFacts
    image: ImageFacts
    runtime: str
    user: ProgramUser
    packages: PackageFolder | None
    """The package folder to mount; the image may have the packages itself."""
    packages_in_image: bool = False
    has_listeners: bool = False
    """Whether its runs may go out."""
    lent: LentInterpreter | None = None
    """Where the image has no Python: what the guest runs on."""
    mounts_are_searched: bool = True
    """Whether all of them were, for sockets."""
    commands: CommandsFolder | None = None
    """`pip` and `uv`, where runs may go out and the engine is on this machine."""
    tenant: str = ""
    """Whose containers these are, and no other's."""

    @property
    def packages_place(self) -> str | None:
        return PACKAGES_PLACE if self.packages or self.packages_in_image else None

    @property
    def has_own_kernel(self) -> bool:
        return self.runtime in self.facts.gvisor_runtimes


def container_configuration(design: Design, labels: dict[str, str]) -> dict[str, Any]:
    return {
        "Image": design.image.digest,
        "Entrypoint": [],
        "Cmd": bootstrap.command(*([design.lent.command] if design.lent else [])),
        "User": _GUEST_ROOT if design.has_own_kernel else str(design.user),
        "Hostname": HOSTNAME,
        "WorkingDir": "/",
        "Env": [],
        "Labels": labels,
        "Healthcheck": {"Test": ["NONE"]},
        "StopSignal": "SIGKILL",
        # The first client that hangs up is the last: the guest sees the end of its input, and ends.
        "OpenStdin": True,
        "StdinOnce": True,
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "Tty": False,
        "HostConfig": _host_configuration(design),
    }


def _host_configuration(design: Design) -> dict[str, Any]:
    resources = design.policy.resources
    memory = resources.memory + (KERNEL_MEMORY_BYTES if design.has_own_kernel else GUEST_MEMORY_BYTES)
    seccomp = profile.seccomp_profile(design.facts.machine)
    return {
        "Runtime": design.runtime,
        "AutoRemove": True,
        # The engine must not keep what goes over the standard streams.
        "LogConfig": {"Type": "none"},
        "NetworkMode": "none",
        "IpcMode": "private",
        "CgroupnsMode": "private",
        # Otherwise it would find the host's own name servers written down.
        "Dns": ["127.0.0.1"],
        "DnsSearch": ["."],
        "ReadonlyRootfs": True,
        "CapDrop": ["ALL"],
        "CapAdd": _capabilities(design),
        "Sysctls": _settings(design),
        "SecurityOpt": ["no-new-privileges:true", f"seccomp={seccomp}"],
        "Memory": memory,
        "MemorySwap": memory,
        "NanoCpus": round(min(resources.cpus, design.facts.cpu_count) * 1e9),
        "PidsLimit": _processes(design),
        "Ulimits": [_ulimit("core", NO_CORE_DUMP), _ulimit("nofile", _open_files(design))],
        "Tmpfs": _tmpfs(design),
        "Mounts": _mounts(design),
        "MaskedPaths": [*_ENGINE_MASKS, *_OUR_MASKS],
        "ReadonlyPaths": list(_READ_ONLY),
    }


def _capabilities(design: Design) -> list[str]:
    """The capabilities of the guest; programs have none."""
    if not design.has_own_kernel:
        return []
    return [*_OWN_KERNEL_CAPABILITIES, *(["NET_BIND_SERVICE"] if design.has_listeners else [])]


def _settings(design: Design) -> dict[str, str]:
    """The guest, an ordinary user, opens listeners on ports like 443, in a namespace of its own."""
    if design.has_own_kernel or not design.has_listeners:
        return {}
    return {"net.ipv4.ip_unprivileged_port_start": "0"}


def _processes(design: Design) -> int:
    """A kernel that is a process itself has threads of its own and several for each process inside; it counts too."""
    most = design.policy.resources.processes
    return KERNEL_THREADS + 4 * most if design.has_own_kernel else most + GUEST_PROCESSES


def _open_files(design: Design) -> int:
    return max(_OPEN_FILES, design.policy.resources.open_files + _MORE_OPEN_FILES)


def _ulimit(name: str, value: int) -> dict[str, Any]:
    return {"Name": name, "Soft": value, "Hard": value}


def _tmpfs(design: Design) -> dict[str, str]:
    resources = design.policy.resources
    owner = f"mode=755,uid={design.user.uid},gid={design.user.gid}"
    # gVisor does not know how to count files.
    execution = "exec" if executables(design.policy) is None else "noexec"
    common = f"rw,nosuid,nodev,{execution}" + ("" if design.has_own_kernel else f",nr_inodes={resources.inodes}")
    scratch = f"{common},size={resources.disk}"
    workspace = f"{common},size={design.policy.workspace_bytes}"
    return {
        WORKSPACE: f"{workspace},{owner}",
        RUN_FOLDER: f"{scratch},{owner}",
        "/tmp": f"{scratch},mode=1777",
        "/var/tmp": f"{scratch},mode=1777",
        "/dev/shm": f"{scratch},mode=1777",
        **(_root_only(design, common) if design.has_own_kernel else {}),
    }


def _root_only(design: Design, common: str) -> dict[str, str]:
    """Folders for root only, where the guest runs as root and programs do not. Elsewhere Landlock hides them."""
    places = (GUEST_FOLDER, *([PLACE] if design.lent else []))
    return dict.fromkeys(places, f"{common},size=1m,mode=700")


def _mounts(design: Design) -> list[dict[str, Any]]:
    entries = [
        _bind(existing_source(mount.source), mount.target, is_writable=mount.mode == "rw")
        for mount in design.policy.filesystem.mounts
    ]
    if design.packages:
        entries.append(_bind(design.packages.path, PACKAGES_PLACE, is_writable=False))
    if design.commands:
        entries.append(_bind(design.commands.path, COMMANDS_PLACE, is_writable=False))
        entries.append(_bind(design.commands.installer, PROGRAM, is_writable=False))
    if design.lent:
        entries.append(design.lent.mount)
    if not design.has_own_kernel:
        entries.append(_terminals())
    return entries


def _terminals() -> dict[str, Any]:
    """A volume that goes with the container. An engine's own /dev/pts could take all terminals of the host."""
    options = {"type": "devpts", "device": "devpts", "o": f"newinstance,ptmxmode=0666,mode=620,max={MOST_TERMINALS}"}
    driver = {"Name": "local", "Options": options}
    return {"Type": "volume", "Target": "/dev/pts", "VolumeOptions": {"NoCopy": True, "DriverConfig": driver}}


def _bind(source: str, target: str, *, is_writable: bool) -> dict[str, Any]:
    # What is mounted below the source is not shown: an engine would leave it writable.
    options = {"Propagation": "rprivate", "NonRecursive": True}
    return {"Type": "bind", "Source": source, "Target": target, "ReadOnly": not is_writable, "BindOptions": options}


def _preload(design: Design) -> list[str]:
    if design.lent:
        return list(_FOR_GUEST)
    extra = design.policy.environment.preload
    return [*USUAL_MODULES, *extra, *program_env.shell_modules(design.packages)]


def _path(design: Design) -> tuple[str, ...]:
    return (*([COMMANDS] if design.commands else []), *(design.image.path or _PATH))


def guest_specification(design: Design) -> RelaySpec:
    policy, packages = design.policy, design.packages_place
    return {
        "limits": {
            "open_files": policy.resources.open_files,
            "file_bytes": max(policy.resources.disk, policy.workspace_bytes),
            "cpu_seconds": policy.resources.cpu_time,
            "address_space_bytes": policy.resources.memory if design.has_own_kernel else None,
            "processes": policy.resources.processes,
        },
        "writable": writable_mounts(policy),
        "executables": executables(policy),
        "hidden": PLACE if design.lent else None,
        "preload": _preload(design),
        "module_path": [packages] if packages else [],
        "environment": program_env.environment(policy, _path(design), design.facts.cpu_count, packages),
        "user": list(design.user) if design.has_own_kernel else None,
        "groups": "gvisor" if design.has_own_kernel else None,
        "patience_seconds": PATIENCE_SECONDS,
    }
