"""Tries each mechanism of the isolation for real, in a child of its own, and says what the kernel answered.

A program by itself, started by `hood doctor`: whatever it does to itself ends with it. It judges nothing; what an
answer means and what to do about it is for whoever asked.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import sys
from collections.abc import Callable
from typing import Any, NoReturn, TypedDict

from . import kernel, wire
from .seccomp import build_filter
from .users import SANDBOX_UID, UID_RANGE, map_own_user, user_namespace

_PATIENCE_SECONDS = 5.0
_FIRST_UID = 1_000_000_000
_NOBODY = 65534
_PROCESSES = 4


class Answer(TypedDict, total=False):
    """Either a value or an error; `errno` is 0 for one that no system call gave."""

    value: int
    errno: int
    error: str


def main() -> None:
    """Reads which cgroups to try to join, by controller; writes one answer for each mechanism."""
    entrances: dict[str, str] = json.load(sys.stdin)
    answers = {name: attempt(function) for name, function in PROBES.items()}
    answers |= {f"{name} cgroup": attempt(lambda path=path: _join_cgroup(path)) for name, path in entrances.items()}
    json.dump(answers, sys.stdout)


def attempt(function: Callable[[], int | None]) -> Answer:
    """Call it in a child, which may end up in a state that nobody wants to live in."""
    read, write = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        _answer(function, write)
    os.setpgid(child, child)
    os.close(write)
    try:
        if not select.select([read], [], [], _PATIENCE_SECONDS)[0]:
            return {"errno": 0, "error": f"no answer after {_PATIENCE_SECONDS:.0f} s"}
        data = os.read(read, 65536)
        return json.loads(data) if data else {"errno": 0, "error": "the process that tried it was killed"}
    finally:
        os.close(read)
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _answer(function: Callable[[], int | None], pipe: int) -> NoReturn:
    answer: Answer
    try:
        kernel.die_with_parent()
        answer = {"value": function() or 0}
    except OSError as error:
        answer = {"errno": error.errno or 0, "error": error.strerror or str(error)}
    except Exception as error:
        answer = {"errno": 0, "error": f"{type(error).__name__}: {error}"}
    os.write(pipe, json.dumps(answer).encode())
    # Ends with the whole group, children that it forgot included.
    signal.pause()
    os._exit(1)


def _in_child(function: Callable[[], int | None]) -> None:
    answer = attempt(function)
    if "error" in answer:
        raise OSError(answer.get("errno", 0), answer["error"])


def _expect(condition: bool, otherwise: str) -> None:
    if not condition:
        raise OSError(0, otherwise)


def _enter_user_namespace() -> None:
    """As a cell does: root takes a range of uids, anybody else maps only themselves."""
    if os.geteuid() == 0:
        id_map = f"0 {_FIRST_UID} {UID_RANGE}"
        namespace = user_namespace(id_map, id_map)
        os.setgroups([])
        kernel.setns(namespace, kernel.CLONE_NEWUSER)
        os.setresgid(0, 0, 0)
        os.setresuid(0, 0, 0)
    else:
        uid, gid = os.geteuid(), os.getegid()
        kernel.unshare(kernel.CLONE_NEWUSER)
        map_own_user(0, uid, gid)


def _enter(namespaces: int) -> None:
    _enter_user_namespace()
    kernel.unshare(namespaces)


def _enter_private_mounts(more: int = 0) -> None:
    _enter(kernel.CLONE_NEWNS | more)
    kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)


def _mount_namespace() -> None:
    _enter_private_mounts()
    kernel.mount("probe", "/tmp", "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "size=4k,nr_inodes=8")


def _network_namespace() -> None:
    _enter(kernel.CLONE_NEWNET)
    kernel.raise_loopback()


def _process_namespace() -> None:
    _enter(kernel.CLONE_NEWPID)
    _in_child(lambda: _expect(os.getpid() == 1, "the first process of the namespace is not process 1"))


def _fresh_proc() -> None:
    _enter_private_mounts(kernel.CLONE_NEWPID)
    flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
    _in_child(lambda: kernel.mount("proc", "/proc", "proc", flags))


def _mount_attributes() -> None:
    _enter_private_mounts()
    tree = kernel.clone_mount("/usr")
    kernel.add_mount_attributes(tree, kernel.MOUNT_ATTR_RDONLY)
    _expect(bool(os.fstatvfs(tree).f_flag & os.ST_RDONLY), "the mount is not read-only")


def _id_mapped_mounts() -> None:
    owner = os.stat("/usr")
    kernel.unshare(kernel.CLONE_NEWNS)
    namespace = user_namespace(f"{owner.st_uid} {_FIRST_UID} 1", f"{owner.st_gid} {_FIRST_UID} 1")
    tree = kernel.clone_mount("/usr")
    kernel.add_mount_attributes(tree, 0, idmap=namespace)
    _expect(os.fstat(tree).st_uid == _FIRST_UID, "files still show their own owner")


def _landlock() -> int:
    abi = kernel.landlock_abi()
    if abi:
        kernel.forbid_new_privileges()
        kernel.landlock_restrict_self(kernel.landlock_create_ruleset((1 << 13) - 1, 0, 0, abi))
        try:
            os.listdir("/")
        except PermissionError:
            return abi
        raise OSError(0, "a folder outside of the rules can still be read")
    return 0


def _status(field: str) -> str:
    with open("/proc/self/status") as stream:
        return dict(line.rstrip("\n").split(":\t", 1) for line in stream if ":\t" in line).get(field, "")


def _seccomp() -> None:
    program = build_filter(os.uname().machine)
    kernel.forbid_new_privileges()
    kernel.load_seccomp(program)
    _expect(_status("Seccomp") == "2", "the filter is not active")


def _no_new_privileges() -> None:
    kernel.forbid_new_privileges()
    _expect(_status("NoNewPrivs") == "1", "the flag is not set")


def _process_limit() -> None:
    """In a user namespace of its own the limit counts this run's processes and not all of the user's."""
    if os.geteuid() == 0:
        os.setresgid(_NOBODY, _NOBODY, _NOBODY)
        os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    kernel.set_dumpable(True)
    uid, gid = os.geteuid(), os.getegid()
    kernel.unshare(kernel.CLONE_NEWUSER)
    map_own_user(SANDBOX_UID, uid, gid)
    # Only now: a namespace also hands the limit that it was made under up to its parent, where others are counted too.
    resource.setrlimit(resource.RLIMIT_NPROC, (_PROCESSES, _PROCESSES))
    kernel.drop_capabilities()
    started = _fork_until_refused(2 * _PROCESSES)
    _expect(started == _PROCESSES - 1, f"{started + 1} processes were allowed where {_PROCESSES} are")


def _fork_until_refused(most: int) -> int:
    for number in range(most):
        try:
            child = os.fork()
        except BlockingIOError:
            return number
        if child == 0:
            kernel.die_with_parent()
            signal.pause()
    return most


def _sealed_memory() -> None:
    descriptor = wire.sealed_file({}, b"")
    try:
        os.write(descriptor, b"x")
    except PermissionError:
        return
    raise OSError(0, "a sealed file can still be written")


def _pidfd() -> None:
    child = os.fork()
    if child == 0:
        kernel.die_with_parent()
        signal.pause()
    descriptor = os.pidfd_open(child)
    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    _expect(os.waitstatus_to_exitcode(status) == -signal.SIGKILL, "the signal did not arrive")


def _join_cgroup(path: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    os.write(descriptor, b"0")


PROBES: dict[str, Callable[[], Any]] = {
    "user namespaces": _enter_user_namespace,
    "mount namespace": _mount_namespace,
    "process namespace": _process_namespace,
    "network namespace": _network_namespace,
    "IPC namespace": lambda: _enter(kernel.CLONE_NEWIPC),
    "UTS namespace": lambda: _enter(kernel.CLONE_NEWUTS),
    "cgroup namespace": lambda: _enter(kernel.CLONE_NEWCGROUP),
    "fresh /proc": _fresh_proc,
    "mount attributes": _mount_attributes,
    "id-mapped mounts": _id_mapped_mounts,
    "Landlock": _landlock,
    "seccomp filter": _seccomp,
    "no_new_privs": _no_new_privileges,
    "RLIMIT_NPROC": _process_limit,
    "sealed memory": _sealed_memory,
    "pidfd": _pidfd,
}
