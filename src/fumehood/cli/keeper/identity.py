"""Compares the rights and limits of a client with those of the keeper, which serves a client that has the same.

A run is done with the rights of the keeper. For a client in a container, under `sudo -g`, `ulimit`, `nice`, `chroot`,
`setpriv` or `systemd-run` those would be other rights than its own: it does its run itself.
"""

from __future__ import annotations

import errno
import os
import socket

from fumehood_client import is_alive, peer_of

_NAMESPACES = ("user", "mnt", "net", "pid", "pid_for_children", "cgroup", "ipc", "uts", "time", "time_for_children")
_STATUS = {
    *("Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs"),
    *("Seccomp", "Seccomp_filters", "Cpus_allowed", "Mems_allowed"),
}
# Among what follows the name in /proc/PID/stat: the nice value; real-time priority and scheduling policy.
_NICE, _REAL_TIME = slice(16, 17), slice(37, 39)
_FILES = ("cgroup", "limits", "oom_score_adj", "personality", "attr/current")
_MOST_BYTES = 64 * 1024


class ClientRefusedError(Exception):
    """The keeper does not serve this client; the message is the reason."""


def check_client(connection: socket.socket) -> None:
    """Raises ClientRefusedError unless the process that connected is alive and has the rights of this process."""
    try:
        process, user, descriptor = peer_of(connection)
        try:
            if user != os.getuid():
                raise ClientRefusedError("another user")
            compare_rights(rights(process), rights(os.getpid()))
            # Its number could be another process's by now, and what was read another's rights.
            if not is_alive(descriptor):
                raise ClientRefusedError("the client has ended")
        finally:
            os.close(descriptor)
    except OSError as error:
        raise ClientRefusedError(f"the client cannot be looked at: {error.strerror}") from error


def compare_rights(theirs: dict[str, str], own: dict[str, str]) -> None:
    for name in own.keys() | theirs.keys():
        if theirs.get(name) != own.get(name):
            raise ClientRefusedError(f"another {name}")
    # A process without privileges needs this bit to restrict itself, by Landlock too, which is seen nowhere else.
    if theirs.get("NoNewPrivs") != "0":
        raise ClientRefusedError("a client that restricts itself")


def rights(process: int) -> dict[str, str]:
    folder = f"/proc/{process}"
    found = {f"namespace {name}": _link(f"{folder}/ns/{name}") for name in _NAMESPACES}
    root = os.stat(f"{folder}/root")  # what it is: a root that is mounted nowhere is called / too
    found["root folder"] = f"{_link(f'{folder}/root')} {root.st_dev} {root.st_ino}"
    for line in _content(f"{folder}/status").splitlines():
        name, _, value = line.partition(":\t")
        if name in _STATUS:
            found[name] = value
    stat = _content(f"{folder}/stat").rpartition(")")[2].split()
    found["priority"] = " ".join((*stat[_NICE], *stat[_REAL_TIME]))
    return found | {name: _content(f"{folder}/{name}") for name in _FILES}


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except FileNotFoundError:  # a namespace that this kernel does not have
        return ""


def _content(path: str) -> str:
    """Empty where this kernel has no such file, or no security module that fills it; anything else is an error."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return ""
    try:
        return os.read(descriptor, _MOST_BYTES).decode("utf-8", "surrogateescape")
    except OSError as error:
        if error.errno == errno.EINVAL:
            return ""
        raise
    finally:
        os.close(descriptor)
