"""Runs in the sandbox: tries files and connections, and prints an error number for each, 0 for what is allowed.

With the name of a resource and an amount as arguments it asks for so much instead, and exits with REFUSED when the
answer is an error; other refusals end the program, and are in the run's result.

Standard input is a JSON list of [kind, target, is_own]; a target of a request is [method, secure, host, port, target],
and other targets are text. Nothing that is there is changed, and nothing is left: a file
that does not exist is tried as one without a name, in the folder that would hold it.
"""

from __future__ import annotations

import errno
import json
import mmap
import os
import secrets
import signal
import socket
import stat
import sys
from typing import Any

_NULL = os.makedev(1, 3)
_NAMELESS_UNKNOWN = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT)
_SECONDS = 5
REFUSED = 3
_PAGE = 4096
_BLOCK = 65536


def read(path: str, *, is_own: bool) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        if not is_own:
            raise
        write(path)  # a program that may write it can read it afterwards
        return
    try:
        if os.fstat(descriptor).st_rdev == _NULL and path != "/dev/null":
            raise PermissionError(errno.EACCES, "it is covered")
    finally:
        os.close(descriptor)


def write(path: str) -> None:
    place = path
    while not os.path.lexists(place):
        place = os.path.dirname(place)
    if stat.S_ISDIR(os.stat(place).st_mode):
        _write_into(place)
    elif place != path:
        raise NotADirectoryError(errno.ENOTDIR, "a file is in the way")
    else:
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        is_cover = os.fstat(descriptor).st_rdev == _NULL and path != "/dev/null"
        os.close(descriptor)
        if is_cover:
            raise PermissionError(errno.EACCES, "it is covered")


def _write_into(folder: str) -> None:
    try:
        os.close(os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600))
    except OSError as error:
        if error.errno not in _NAMELESS_UNKNOWN:
            raise
        name = os.path.join(folder, f".hood-{secrets.token_hex(8)}")
        os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        os.unlink(name)


def find(endpoint: str) -> None:
    """Only whether the name is answered."""
    host, _, port = endpoint.rpartition(":")
    try:
        socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
    except socket.gaierror:
        raise FileNotFoundError(errno.ENOENT, "no such name") from None


def connect(endpoint: str) -> None:
    find(endpoint)
    host, _, port = endpoint.rpartition(":")
    with socket.create_connection((host.strip("[]"), int(port)), _SECONDS) as link:
        try:
            # One that is refused after it was accepted ends at once.
            if link.recv(1) == b"":
                raise ConnectionResetError(errno.ECONNRESET, "it was closed")
        except TimeoutError:
            return


def request(method: str, is_secure: bool, host: str, port: int, target: str) -> None:
    """Sends a request, which the gateway refuses before it connects to a server."""
    name = f"[{host}]" if ":" in host else host
    text = f"{method} {target} HTTP/1.1\r\nHost: {name}:{port}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    with socket.create_connection((host, port), _SECONDS) as plain, _secured(plain, host, is_secure) as link:
        link.sendall(text.encode())
        if link.recv(16).split(b" ")[1:2] in ([b"403"], [b"400"]):
            raise PermissionError(errno.EACCES, "the gateway refused it")


def _secured(plain: socket.socket, host: str, is_secure: bool) -> socket.socket:
    if not is_secure:
        return plain
    import ssl  # as late as this, because it is large and few need it

    return ssl.create_default_context().wrap_socket(plain, server_hostname=host)


def attempt(kind: str, target: Any, is_own: bool) -> int:
    try:
        match kind:
            case "read":
                read(target, is_own=is_own)
            case "write":
                write(target)
            case "find":
                find(target)
            case "request":
                request(*target)
            case _:
                connect(target)
    except OSError as error:
        return error.errno or errno.EIO
    return 0


def take_memory(amount: int) -> None:
    memory = mmap.mmap(-1, max(amount, 1))
    for place in range(0, amount, _PAGE):
        memory[place] = 1


def take_processes(amount: int) -> None:
    for _ in range(amount):
        if os.fork() == 0:
            signal.pause()


def take_open_files(amount: int) -> None:
    for _ in range(amount):
        os.open("/dev/null", os.O_RDONLY)


def take_disk(amount: int) -> None:
    with open("/tmp/demand", "wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(amount, 1))


def take_inodes(amount: int) -> None:
    for number in range(amount):
        os.close(os.open(f"/tmp/{number}", os.O_CREAT | os.O_WRONLY, 0o600))


def take_output(amount: int) -> None:
    for place in range(0, amount, _BLOCK):
        os.write(1, b"." * min(_BLOCK, amount - place))


def take(resource: str, amount: int) -> None:
    """Never returns: what was taken goes with the process."""
    ways = {
        "memory": take_memory,
        "processes": take_processes,
        "open_files": take_open_files,
        "disk": take_disk,
        "inodes": take_inodes,
        "output": take_output,
    }
    try:
        ways[resource](amount)
    except (OSError, MemoryError):
        os._exit(REFUSED)
    os._exit(0)


if __name__ == "__main__":
    if sys.argv[1:]:
        take(sys.argv[1], int(sys.argv[2]))
    print(json.dumps([attempt(*entry) for entry in json.load(sys.stdin)], separators=(",", ":")))
