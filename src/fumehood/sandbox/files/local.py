"""The host's own files: read for an upload, written for a download. All of it in worker threads.

What a download writes is data and nothing else: new files of mode 0644 in new folders, through descriptors, following
no link. It becomes visible under its name when it is complete.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from contextlib import suppress
from types import TracebackType
from typing import Self

import anyio
import anyio.to_thread

from fumehood.errors import UsageError
from fumehood.guest.contract.paths import hidden_name
from fumehood.sandbox.files.protocol import CHUNK_BYTES

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# File systems on which a file has one name only answer with one of these.
_NO_SECOND_NAMES = (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS)
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class LocalSource:
    """`with LocalSource(path) as source`: a file of the host's, on its way in."""

    def __init__(self, path: str | int, *, follow: bool = False) -> None:
        """`path` may be a descriptor of the file, which is closed at the end."""
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
        self._file = path if isinstance(path, int) else os.open(path, flags)
        self._digest = hashlib.sha256()
        details = os.fstat(self._file)
        self.is_regular = stat.S_ISREG(details.st_mode)
        self.is_executable = bool(details.st_mode & stat.S_IXUSR)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        os.close(self._file)

    async def next(self) -> tuple[memoryview, bool]:
        return await anyio.to_thread.run_sync(self._read)

    def _read(self) -> tuple[memoryview, bool]:
        buffer, filled = memoryview(bytearray(CHUNK_BYTES)), 0
        while filled < CHUNK_BYTES:
            count = os.readv(self._file, [buffer[filled:]])
            if not count:
                break
            filled += count
        self._digest.update(buffer[:filled])
        return buffer[:filled], filled < CHUNK_BYTES

    def sha256(self) -> str:
        return self._digest.hexdigest()


class LocalSink:
    """A new file in a folder that is held open, made when its first data arrives or when it is complete without any."""

    def __init__(self, folder: int, name: str) -> None:
        self._folder, self._name = folder, name
        self._file: int | None = None
        self._digest = hashlib.sha256()

    async def take(self, data: bytes) -> None:
        await anyio.to_thread.run_sync(self._write, data)

    def _write(self, data: bytes) -> None:
        if self._file is None:
            self._file = os.open(self._name, _NEW_FILE, 0o644, dir_fd=self._folder)
        self._digest.update(data)
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._file, rest) :]

    def sha256(self) -> str:
        return self._digest.hexdigest()

    def finish(self) -> None:
        self._write(b"")
        self._close()

    def drop(self) -> None:
        if self._file is not None:
            self._close()
            os.unlink(self._name, dir_fd=self._folder)

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


class Staging:
    """A hidden folder beside the target in which a download grows, out of reach for others until it is complete."""

    def __init__(self, target: str) -> None:
        self._target = target
        parent = os.path.dirname(target) or "."
        if os.path.lexists(target):
            raise UsageError(f"{target!r} exists already; a download never replaces anything")
        self._folder = os.path.join(parent, hidden_name())
        try:
            os.mkdir(self._folder, 0o700)
        except OSError as error:
            raise UsageError(f"{target!r} cannot be made in {parent!r}: {error.strerror}") from error
        self._top = os.open(self._folder, _FOLDER)

    def open_folder(self, names: tuple[str, ...]) -> int:
        """A descriptor of a folder below the top; folders on the way are made."""
        current = os.dup(self._top)
        for name in names:
            try:
                with suppress(FileExistsError):
                    os.mkdir(name, 0o755, dir_fd=current)
                below = os.open(name, _FOLDER, dir_fd=current)
            finally:
                os.close(current)
            current = below
        return current

    def make_link(self, names: tuple[str, ...], target: str) -> None:
        folder = self.open_folder(names[:-1])
        try:
            os.symlink(target, names[-1], dir_fd=folder)
        finally:
            os.close(folder)

    def publish(self, name: str) -> None:
        """Give what has this name in the top folder its real place; never over anything."""
        made_room = False
        try:
            if stat.S_ISDIR(os.stat(name, dir_fd=self._top, follow_symlinks=False).st_mode):
                os.mkdir(self._target)
                made_room = True
                os.rename(name, self._target, src_dir_fd=self._top)
            else:
                self._publish_file(name)
        except FileExistsError as error:
            raise UsageError(f"{self._target!r} exists now; a download never replaces anything") from error
        except OSError as error:
            if made_room:
                with suppress(OSError):
                    os.rmdir(self._target)
            raise UsageError(f"{self._target!r} cannot be made: {error.strerror}") from error

    def _publish_file(self, name: str) -> None:
        try:
            os.link(name, self._target, src_dir_fd=self._top, follow_symlinks=False)
        except OSError as error:
            if error.errno not in _NO_SECOND_NAMES:
                raise
            os.close(os.open(self._target, _NEW_FILE, 0o600))
            os.rename(name, self._target, src_dir_fd=self._top)

    def remove(self) -> None:
        os.close(self._top)
        import shutil

        shutil.rmtree(self._folder)
