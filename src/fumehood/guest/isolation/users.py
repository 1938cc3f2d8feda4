"""User namespaces and who is who in them.

Two levels: the cell's namespace, whose root owns the mounts, network and processes of all runs, and below it one for
each run, in which the user's code lives with a single uid and owns nothing.
"""

from __future__ import annotations

import os
import signal
from typing import NamedTuple, NoReturn

from . import kernel


class UserNamespace(NamedTuple):
    descriptor: int
    holder: int
    """The process that it was made with. It has been killed, and its parent, which is us, has to wait for it."""


def user_namespace(uid_map: str, gid_map: str) -> UserNamespace:
    """A new one with these maps. Only for the host's root."""
    holder = kernel.clone(kernel.CLONE_NEWUSER)
    if holder == 0:
        _hold_namespace()
    try:
        _write_map(f"/proc/{holder}/uid_map", uid_map)
        _write_map(f"/proc/{holder}/gid_map", gid_map)
        descriptor = os.open(f"/proc/{holder}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    except BaseException:
        os.kill(holder, signal.SIGKILL)
        os.waitpid(holder, 0)
        raise
    os.kill(holder, signal.SIGKILL)
    return UserNamespace(descriptor, holder)


def _hold_namespace() -> NoReturn:
    """The child's whole life: it was born in the namespace, and waits to be killed."""
    try:
        kernel.die_with_parent()
        while True:
            signal.pause()
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
