"""What is in a folder, as data that can be sent."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

from ..contract.limits import MAX_LISTING_BYTES
from .conversation import FileRefusedError
from .resolution import ChangedError

# With links of full length and every character escaped, one entry has some 26 kB; a body must stay below 1 MiB.
_BATCH_BYTES = 256 * 1024
_DIGESTED_AT_ONCE = 64 * 1024 * 1024
_CHUNK_BYTES = 1024 * 1024

_KINDS = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "folder",
    stat.S_IFLNK: "link",
    stat.S_IFIFO: "pipe",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}


def kind_of(details: os.stat_result) -> str:
    return _KINDS[stat.S_IFMT(details.st_mode)]


def describe(folder: int, name: str) -> dict[str, Any]:
    """What has this name, itself: a link is not followed."""
    return _description(folder, name, os.stat(name, dir_fd=folder, follow_symlinks=False))


def _description(folder: int, name: str, details: os.stat_result) -> dict[str, Any]:
    kind = kind_of(details)
    return {
        "name": name,
        "kind": kind,
        "size": details.st_size,
        "mode": stat.S_IMODE(details.st_mode),
        "uid": details.st_uid,
        "gid": details.st_gid,
        "modified_ns": details.st_mtime_ns,
        "target": _target(folder, name) if kind == "link" else None,
        # Changes, or the size does, when a program writes to the file.
        "version": [details.st_ino, details.st_ctime_ns],
    }


def _target(folder: int, name: str) -> str:
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError as error:
        # It was a link a moment ago.
        raise ChangedError from error


def batches(folder: int, limit: int, most_digested: int | None = None) -> Iterator[bytes]:
    """JSON lists of descriptions, at most `limit` together. What vanishes meanwhile is left out.

    Raises RefusedError rather than have them be larger than MAX_LISTING_BYTES: links can be long. With `most_digested`
    they have the digests of files, if those have no more bytes together.
    """
    pieces: list[str] = []
    size, left, digested = 0, MAX_LISTING_BYTES, 0
    for description in _descriptions(folder, limit):
        if most_digested is not None and description["kind"] == "file":
            digested += description["size"]
            if digested > most_digested:
                raise FileRefusedError("too large", size=digested)
            description["sha256"] = digest_of(folder, description["name"], description["mode"], description["size"])
        piece = json.dumps(description)
        pieces.append(piece)
        size += len(piece) + 1
        if size > left:
            raise FileRefusedError("too long to list")
        # The host waits for a message no longer than for a run: none takes long to compute.
        if (
            size >= _BATCH_BYTES
            or digested // _DIGESTED_AT_ONCE != (digested - _size(description)) // _DIGESTED_AT_ONCE
        ):
            yield _as_list(pieces)
            pieces, size, left = [], 0, left - size
    if pieces:
        yield _as_list(pieces)


def _size(description: dict[str, Any]) -> int:
    return description["size"] if "sha256" in description else 0


def digest_of(folder: int, name: str, mode: int, size: int) -> str | None:
    """Of as many bytes as the file had when it was listed; None if it is no longer there, or cannot be read."""
    digest, buffer = sha256(), memoryview(bytearray(min(size, _CHUNK_BYTES)))
    try:
        with opened_for_saving(folder, name, mode) as file:
            while size:
                count = os.readv(file, [buffer[: min(size, len(buffer))]])
                if not count:
                    break
                digest.update(buffer[:count])
                size -= count
    except OSError:
        return None
    return digest.hexdigest()


@contextmanager
def opened_for_saving(folder: int, name: str, mode: int) -> Iterator[int]:
    """A regular file, also one whose mode does not let its owner read it; that is as it was afterwards."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        file = os.open(name, flags, dir_fd=folder)
    except PermissionError:
        # As its owner could. A link that a program puts there reaches what it could.
        os.chmod(name, mode & 0o777 | stat.S_IRUSR, dir_fd=folder)
        file = os.open(name, flags, dir_fd=folder)
        os.fchmod(file, mode & 0o777)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        yield file
    finally:
        os.close(file)


def _as_list(pieces: list[str]) -> bytes:
    return f"[{','.join(pieces)}]".encode()


def _descriptions(folder: int, limit: int) -> Iterator[dict[str, Any]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if limit == 0:
                return
            try:
                yield _description(folder, entry.name, entry.stat(follow_symlinks=False))
            except (OSError, ChangedError):
                continue
            limit -= 1
