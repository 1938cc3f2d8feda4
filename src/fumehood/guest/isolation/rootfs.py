"""What a sandbox can see: a small tmpfs root of read-only copies of host folders, built once for each cell.

Owns mounts. Every bind is made detached, made harmless (read-only, nosuid, nodev), and only then attached, so that
there is no moment at which a writable copy can be reached.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from ..contract.cell_spec import BindSpec, CellLimits, CellSpec
from ..contract.limits import SANDBOX_UID
from ..contract.paths import RUN_FOLDER, TMP
from . import kernel
from .steps import step
from .users import user_namespace

# The tmpfs is put over one of these for the moment before it becomes the root; sources are held open by then.
_STAGING_FOLDERS = ("/tmp", "/mnt", "/srv", "/var")
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_EXECUTABLE = 0o555
HARMLESS = kernel.MS_NOSUID | kernel.MS_NODEV

# What anyone may read in a fresh /proc that is about the host. Files that only root may read need no cover: no
# process inside is root to the kernel.
_HIDDEN_PROC_FILES = (
    "cmdline", "config.gz", "diskstats", "interrupts", "kallsyms", "key-users", "keys", "locks", "modules", "partitions"
)  # fmt: skip
_HIDDEN_PROC_FOLDERS = ("acpi", "bus", "driver", "fs", "irq", "pressure", "scsi", "tty")


class Bind:
    """One host path to show inside; held open from before the root changes."""

    def __init__(self, entry: BindSpec) -> None:
        self._target = entry["target"]
        details = os.stat(entry["source"])
        self._is_folder = stat.S_ISDIR(details.st_mode)
        self._tree = kernel.clone_mount(entry["source"], recursive=True)
        kernel.add_mount_attributes(self._tree, _attributes(entry))
        if entry["owner"] is not None:
            self._show_as_owned_by(entry["owner"], details)

    def _show_as_owned_by(self, owner: int, details: os.stat_result) -> None:
        """Let the sandbox's user own what the source's owner owns. Without kernel support it stays a stranger's."""
        namespace, holder = user_namespace(f"{details.st_uid} {owner} 1", f"{details.st_gid} {owner} 1")
        try:
            os.waitpid(holder, 0)
            kernel.add_mount_attributes(self._tree, 0, idmap=namespace)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EPERM, errno.EOPNOTSUPP):
                raise
        finally:
            os.close(namespace)

    def attach(self, root: str) -> None:
        place = root + self._target
        os.makedirs(place if self._is_folder else os.path.dirname(place), exist_ok=True)
        if not self._is_folder:
            os.close(os.open(place, os.O_CREAT | os.O_CLOEXEC, 0o644))
        kernel.attach_mount(self._tree, place)
        os.close(self._tree)


def _attributes(entry: BindSpec) -> int:
    return _attributes_of(entry["mode"]) | (0 if entry["executes"] else kernel.MOUNT_ATTR_NOEXEC)


def _attributes_of(mode: str) -> int:
    match mode:
        case "device":
            # Read-only keeps the node as it is, times and mode; what is written to the device is another matter.
            return kernel.MOUNT_ATTR_NOSUID | kernel.MOUNT_ATTR_NOEXEC | kernel.MOUNT_ATTR_RDONLY
        case "rw":
            return kernel.MOUNT_ATTR_NOSUID | kernel.MOUNT_ATTR_NODEV
        case _:
            return kernel.MOUNT_ATTR_NOSUID | kernel.MOUNT_ATTR_NODEV | kernel.MOUNT_ATTR_RDONLY


def enter_root(spec: CellSpec) -> None:
    """Build the new root and step into it; the host's files are unreachable from here on."""
    with step("making mounts private"):
        kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    binds = _open_binds(spec["binds"])
    root = next(folder for folder in _STAGING_FOLDERS if os.path.isdir(folder))
    with step("making the root file system"):
        kernel.mount("sandbox", root, "tmpfs", HARMLESS, f"mode=755,size=16m,nr_inodes=4096,{_root_owner(spec)}")
        _fill(root, spec)
        for bind in binds:
            bind.attach(root)
        for path, cover in spec["covered"].items():
            Bind({"source": root + cover, "target": path, "mode": "ro", "executes": True, "owner": None}).attach(root)
    with step("changing the root"):
        kernel.pivot_into(root)
    with step("making the root read-only"):
        kernel.mount("none", "/", flags=kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY | HARMLESS)


def _root_owner(spec: CellSpec) -> str:
    """The owner of the root folder: the sandbox's user, as on an unprivileged host. There is no root inside, and tools
    that check the owners of their parent folders trust no other user. It is read-only, so no program can write to it.
    """
    owner = 0 if spec["rootless"] else spec["uid_base"] + SANDBOX_UID
    return f"uid={owner},gid={owner}"


def _open_binds(entries: list[BindSpec]) -> list[Bind]:
    devices: list[BindSpec] = [
        {"source": f"/dev/{name}", "target": f"/dev/{name}", "mode": "device", "executes": False, "owner": None}
        for name in _DEVICES
    ]
    # The kernel lets a namespace mount a fresh /proc only while it can already see a complete one.
    proc: BindSpec = {"source": "/proc", "target": "/proc", "mode": "rw", "executes": True, "owner": None}
    binds: list[Bind] = []
    for entry in (*entries, *devices, proc):
        with step(f"showing {entry['source']} to the sandbox"):
            binds.append(Bind(entry))
    return binds


def _fill(root: str, spec: CellSpec) -> None:
    for folder in spec["folders"]:
        os.makedirs(root + folder, exist_ok=True)
    for path, target in spec["symlinks"].items():
        os.makedirs(os.path.dirname(root + path), exist_ok=True)
        os.symlink(target, root + path)
    for path, text in (*spec["files"].items(), *spec["programs"].items()):
        os.makedirs(os.path.dirname(root + path), exist_ok=True)
        with open(root + path, "w", encoding="utf-8") as stream:
            stream.write(text)
    for path in spec["programs"]:
        os.chmod(root + path, _EXECUTABLE)


def mount_proc() -> None:
    kernel.mount("proc", "/proc", "proc", HARMLESS | kernel.MS_NOEXEC)


def open_workspaces() -> None:
    """The cell's place for the workspaces of its sandboxes."""
    kernel.mount("workspaces", RUN_FOLDER, "tmpfs", HARMLESS, "mode=700,size=1m,nr_inodes=100000")


@contextmanager
def scratch() -> Iterator[None]:
    """A /tmp for the cell itself: some modules want to write when they are imported. Runs never see it."""
    kernel.mount("scratch", TMP, "tmpfs", HARMLESS, "mode=1777,size=64m,nr_inodes=10000")
    try:
        yield
    finally:
        kernel.unmount(TMP)


def write_executable(path: str, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o500)
    with open(descriptor, "wb") as stream:
        stream.write(content)


def workspace_place(identifier: int) -> str:
    return f"{RUN_FOLDER}/{identifier}"


def tmp_place(identifier: int) -> str:
    """The folder for /tmp of a sandbox whose runs share it."""
    return f"{RUN_FOLDER}/{identifier}.tmp"


def mount_workspace(identifier: int, owner: int, limits: CellLimits, *, executable: bool) -> None:
    _mount_shared(workspace_place(identifier), "755", owner, limits["workspace_bytes"], limits, executable)


def mount_tmp(identifier: int, owner: int, limits: CellLimits, *, executable: bool) -> None:
    _mount_shared(tmp_place(identifier), "1777", owner, limits["disk_bytes"], limits, executable)


def _mount_shared(place: str, mode: str, owner: int, size: int, limits: CellLimits, executable: bool) -> None:
    os.mkdir(place)
    options = f"mode={mode},uid={owner},gid={owner},size={size},nr_inodes={limits['inodes']}"
    try:
        kernel.mount("workspace", place, "tmpfs", HARMLESS if executable else HARMLESS | kernel.MS_NOEXEC, options)
    except OSError:
        os.rmdir(place)
        raise


def unmount_shared(place: str) -> None:
    kernel.unmount(place)
    os.rmdir(place)


def proc_masks() -> list[tuple[str, str]]:
    """What is to be covered in a fresh /proc, and with what; the kernel's configuration decides which exist."""
    files = [(f"/proc/{name}", "/dev/null") for name in _HIDDEN_PROC_FILES]
    folders = [(f"/proc/{name}", "/var/empty") for name in _HIDDEN_PROC_FOLDERS]
    return [(path, cover) for path, cover in files + folders if os.path.exists(path)]
