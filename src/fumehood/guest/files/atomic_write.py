"""Atomic writes: a file becomes visible when it is complete, and nothing is left of it when it never is."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from types import TracebackType
from typing import Self

from ..contract.paths import hidden_name

# File systems without nameless files answer with one of these.
_NO_NAMELESS_FILES = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT)


class Draft:
    """`with Draft(folder, mode) as draft`: write, then publish under a name."""

    def __init__(self, folder: int, mode: int) -> None:
        self._folder = folder
        self._name: str | None = None
        try:
            self._file = os.open(".", os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, mode, dir_fd=folder)
        except OSError as error:
            if error.errno not in _NO_NAMELESS_FILES:
                raise
            self._name = hidden_name()
            flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
            self._file = os.open(self._name, flags, mode, dir_fd=folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        os.close(self._file)
        if self._name is not None:
            with suppress(OSError):
                os.unlink(self._name, dir_fd=self._folder)

    def write(self, data: bytes) -> None:
        write_all(self._file, data)

    def change_mode(self, mode: int) -> None:
        """Exactly this one, whatever the umask is."""
        os.fchmod(self._file, mode)

    def version(self) -> list[int]:
        details = os.fstat(self._file)
        return [details.st_ino, details.st_ctime_ns]

    def publish(self, name: str) -> None:
        """Takes the place of what has the name, unless that is a folder."""
        if self._name is None:
            self._name = hidden_name()
            # The descriptor's own link in /proc is how a file without a name gets one.
            os.link(f"/proc/self/fd/{self._file}", self._name, dst_dir_fd=self._folder, follow_symlinks=True)
        os.rename(self._name, name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        self._name = None


def write_all(file: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]
