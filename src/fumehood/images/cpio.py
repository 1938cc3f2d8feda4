"""An archive of files as the kernel unpacks it when it starts (cpio, "newc"). Pure."""

from __future__ import annotations

import stat
from collections.abc import Iterator, Mapping

_MAGIC = b"070701"
_END = "TRAILER!!!"


def archive(folders: tuple[str, ...], files: Mapping[str, tuple[bytes, int]]) -> bytes:
    """`files` are contents and modes by name; all is root's, and as old as time. Equal contents are equal bytes."""
    members = [(name, stat.S_IFDIR | 0o755, b"") for name in folders]
    members += [(name, stat.S_IFREG | mode, content) for name, (content, mode) in files.items()]
    return b"".join(_entries([*members, (_END, 0, b"")]))


def _entries(members: list[tuple[str, int, bytes]]) -> Iterator[bytes]:
    for number, (name, mode, content) in enumerate(members, 1):
        encoded = name.encode() + b"\0"
        # Inode, mode, uid, gid, links, time, size, four numbers of devices, length of the name, checksum.
        fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(encoded), 0)
        header = _MAGIC + b"".join(b"%08x" % field for field in fields) + encoded
        yield header + _padding(header)
        yield content + _padding(content)


def _padding(data: bytes) -> bytes:
    return b"\0" * (-len(data) % 4)
