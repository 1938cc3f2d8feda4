"""Files of this machine that a policy mounts, packed to be sent along to a server: copies, to be read and not written.

A pack is a sequence of messages, one for each entry below the mount's source: its path, and a file's content. The entry
with an empty path is the source itself, and the last message says that it is whole.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from fumehood.errors import UsageError
from fumehood.guest.contract import frames
from fumehood.policy import Mount, Policy, format_size
from fumehood.policy.quantities import MIB
from fumehood.sandbox.files.paths import stays_inside

MOST_BYTES = 15 * MIB
MOST_ENTRIES = 10_000
_ENTRY_BYTES = 512


def mounts_of(policy: Policy) -> tuple[Mount, ...]:
    """UsageError for what a copy elsewhere cannot be."""
    for mount in policy.filesystem.mounts:
        if mount.mode != "ro" or mount.sockets:
            raise UsageError(
                f"filesystem.mounts[{mount.target}]: a server gets a copy of {mount.source}, and programs there cannot "
                "write to it or connect to sockets in it; mount it with mode: ro, or upload and download files"
            )
    return policy.filesystem.mounts


def pack_mount(mount: Mount) -> bytes:
    """Blocks. Links that lead out of it are left out: there is nothing behind them."""
    packed, left, count = bytearray(), MOST_BYTES, 0
    try:
        for header, file in _entries(Path(mount.source)):
            count += 1
            content = b"" if file is None else _content(file, left)
            left -= len(content) + _ENTRY_BYTES
            if left < 0 or count > MOST_ENTRIES:
                raise UsageError(
                    f"filesystem.mounts[{mount.target}]: {mount.source} has more than the {format_size(MOST_BYTES)} or "
                    f"{MOST_ENTRIES} files that are sent along to a server; upload what programs need"
                )
            packed += frames.encode(header, content)
    except OSError as error:
        name = error.filename or mount.source
        raise UsageError(f"filesystem.mounts[{mount.target}]: {name} cannot be read: {error.strerror}") from error
    return bytes(packed + frames.encode({"end": True}))


def _entries(source: Path) -> Iterator[tuple[frames.Header, Path | None]]:
    """Folders before what is in them, each with the file that has its content."""
    details = source.stat()
    if not stat.S_ISDIR(details.st_mode):
        yield {"path": "", "kind": "file", "executable": bool(details.st_mode & 0o100)}, source
        return
    yield {"path": "", "kind": "folder"}, None
    for folder, folders, files in os.walk(source, onerror=_raise):
        for name in sorted((*folders, *files)):
            place = Path(folder, name)
            path, mode = str(place.relative_to(source)), place.lstat().st_mode
            if stat.S_ISLNK(mode):
                if stays_inside(path, target := os.readlink(place)):
                    yield {"path": path, "kind": "link", "target": target}, None
            elif stat.S_ISDIR(mode):
                yield {"path": path, "kind": "folder"}, None
            elif stat.S_ISREG(mode):
                yield {"path": path, "kind": "file", "executable": bool(mode & 0o100)}, place


def _content(file: Path, most: int) -> bytes:
    with file.open("rb") as stream:
        return stream.read(max(0, most) + 1)


def _raise(error: OSError) -> None:
    raise error
