"""Unix sockets that lie in a folder of the host.

A program that sees a socket's file can connect to it, if its mode allows: a read-only mount does not change that, and
neither Landlock nor seccomp can. So a policy has to allow each mount that holds one.
"""

from __future__ import annotations

import os
import stat
import time
from collections import deque
from pathlib import Path
from typing import NamedTuple

from fumehood.policy.paths import is_inside

MOST_ENTRIES = 50_000
MOST_SECONDS = 1.0
REMEDY = "remove it, mount only the folder that is needed, or say sockets: true for this mount"


class Search(NamedTuple):
    socket: str | None
    is_complete: bool
    """Whether there is no other, if none was found."""


def find_socket(source: str, most_entries: int = MOST_ENTRIES) -> Search:
    """The folders nearest to the source first. What is too large is searched in the kernel's list of sockets instead,
    which has those of our own network namespace.
    """
    found = _walk(source, most_entries)
    return found if found.is_complete else Search(_listening(source), is_complete=False)


def _walk(source: str, most_entries: int) -> Search:
    if not os.path.isdir(source):
        return Search(source if _is_socket(source) else None, is_complete=True)
    folders, left, end, is_complete = deque([source]), most_entries, time.monotonic() + MOST_SECONDS, True
    while folders:
        try:
            with os.scandir(folders.popleft()) as entries:
                for entry in entries:
                    left -= 1
                    if left < 0 or time.monotonic() > end:
                        return Search(None, is_complete=False)
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    elif not entry.is_file(follow_symlinks=False) and _is_socket(entry.path):
                        return Search(entry.path, is_complete=True)
        except OSError:
            is_complete = False  # a folder that we may not read; programs in a container may
    return Search(None, is_complete)


def _listening(source: str) -> str | None:
    with open("/proc/net/unix", encoding="utf-8", errors="surrogateescape") as lines:
        paths = (line.rstrip("\n").split(maxsplit=7)[-1] for line in lines)
        inside = (path for path in paths if path.startswith("/") and is_inside(path, str(Path(source).resolve())))
        return next(filter(_is_socket, inside), None)


def _is_socket(path: str) -> bool:
    """The file itself: a link leads to what is not in the mount, or is found there."""
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False
