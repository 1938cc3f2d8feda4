"""User namespaces and who is who in them.

Two levels: the cell's namespace, whose root owns the mounts, network and processes of all runs, and below it one for
each run, in which the user's code lives with a single uid and owns nothing.
"""

from __future__ import annotations

import os

from . import kernel


def user_namespace(uid_map: str, gid_map: str) -> int:
    """A descriptor of a new user namespace with these maps. Only for the host's root."""
    ready_read, ready_write = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if child == 0:
        _hold_namespace(ready_write)
    try:
        os.close(ready_write)
        if os.read(ready_read, 1) != b"y":
            raise OSError(1, "a new user namespace could not be made")
        _write_map(f"/proc/{child}/uid_map", uid_map)
        _write_map(f"/proc/{child}/gid_map", gid_map)
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(ready_read)
        os.kill(child, 9)
        os.waitpid(child, 0)


def _hold_namespace(ready: int) -> None:
    """The child's whole life: make the namespace, say so, and wait to be killed."""
    try:
        kernel.die_with_parent()
        kernel.unshare(kernel.CLONE_NEWUSER)
        os.write(ready, b"y")
        os.close(ready)
        while True:
            os.read(os.pipe()[0], 1)
    finally:
        os._exit(1)


def user_map_files(inside: int, outside_uid: int, outside_gid: int) -> tuple[tuple[str, str], ...]:
    """What to write where to map one user, which needs no privilege; groups are given up for good."""
    return (
        ("/proc/self/setgroups", "deny"),
        ("/proc/self/uid_map", f"{inside} {outside_uid} 1"),
        ("/proc/self/gid_map", f"{inside} {outside_gid} 1"),
    )


def map_own_user(inside: int, outside_uid: int, outside_gid: int) -> None:
    for path, text in user_map_files(inside, outside_uid, outside_gid):
        _write_map(path, text)


def _write_map(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
