"""Namespaces and the mounts in them, entered the way a cell enters them."""

from __future__ import annotations

import fcntl
import os
import socket
import struct

from ..contract.limits import UID_RANGE
from ..isolation import kernel
from ..isolation.users import map_own_user, user_namespace
from .attempts import expect, in_child

_FIRST_UID = 1_000_000_000


def enter_user_namespace() -> None:
    """Enters a user namespace as a cell does: root maps a range of uids, any other user only its own."""
    if os.geteuid() == 0:
        id_map = f"0 {_FIRST_UID} {UID_RANGE}"
        namespace, holder = user_namespace(id_map, id_map)
        os.waitpid(holder, 0)
        os.setgroups([])
        kernel.setns(namespace, kernel.CLONE_NEWUSER)
        os.setresgid(0, 0, 0)
        os.setresuid(0, 0, 0)
    else:
        uid, gid = os.geteuid(), os.getegid()
        kernel.unshare(kernel.CLONE_NEWUSER)
        map_own_user(0, uid, gid)


def enter(namespaces: int) -> None:
    enter_user_namespace()
    kernel.unshare(namespaces)


def _enter_private_mounts(more: int = 0) -> None:
    enter(kernel.CLONE_NEWNS | more)
    kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)


def mount_namespace() -> None:
    _enter_private_mounts()
    kernel.mount("probe", "/tmp", "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "size=4k,nr_inodes=8")


def network_namespace() -> None:
    enter(kernel.CLONE_NEWNET)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, kernel.SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", kernel.IFF_UP))


def process_namespace() -> None:
    enter(kernel.CLONE_NEWPID)
    in_child(lambda: expect(os.getpid() == 1, "the first process of the namespace is not process 1"))


def fresh_proc() -> None:
    _enter_private_mounts(kernel.CLONE_NEWPID)
    flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
    in_child(lambda: kernel.mount("proc", "/proc", "proc", flags))


def mount_attributes() -> None:
    _enter_private_mounts()
    tree = kernel.clone_mount("/usr")
    kernel.add_mount_attributes(tree, kernel.MOUNT_ATTR_RDONLY)
    expect(bool(os.fstatvfs(tree).f_flag & os.ST_RDONLY), "the mount is not read-only")


def id_mapped_mounts() -> None:
    owner = os.stat("/usr")
    kernel.unshare(kernel.CLONE_NEWNS)
    namespace, holder = user_namespace(f"{owner.st_uid} {_FIRST_UID} 1", f"{owner.st_gid} {_FIRST_UID} 1")
    os.waitpid(holder, 0)
    tree = kernel.clone_mount("/usr")
    kernel.add_mount_attributes(tree, 0, idmap=namespace)
    expect(os.fstat(tree).st_uid == _FIRST_UID, "files still show their own owner")
