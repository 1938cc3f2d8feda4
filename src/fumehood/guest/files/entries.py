"""What is in a folder, as data that can be sent."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from typing import Any

from ..contract.limits import MAX_LISTING_BYTES
from .conversation import FileRefusedError
from .resolution import ChangedError

# With links of full length and every character escaped, one entry has some 26 kB; a body must stay below 1 MiB.
_BATCH_BYTES = 256 * 1024

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


def batches(folder: int, limit: int) -> Iterator[bytes]:
    """JSON lists of descriptions, at most `limit` together. What vanishes meanwhile is left out.

    Raises RefusedError rather than have them be larger than MAX_LISTING_BYTES: links can be long.
    """
    pieces: list[str] = []
    size, left = 0, MAX_LISTING_BYTES
    for description in _descriptions(folder, limit):
        piece = json.dumps(description)
        pieces.append(piece)
        size += len(piece) + 1
        if size > left:
            raise FileRefusedError("too long to list")
        if size >= _BATCH_BYTES:
            yield _as_list(pieces)
            pieces, size, left = [], 0, left - size
    if pieces:
        yield _as_list(pieces)


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
