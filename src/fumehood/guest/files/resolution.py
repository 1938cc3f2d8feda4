"""From a path to a folder that is held open and one name in it, without ever leaving the place where the path starts.

Does what openat2 does (RESOLVE_BENEATH, RESOLVE_IN_ROOT, RESOLVE_NO_MAGICLINKS), one name at a time. The call itself is
not for us: the file service has the system calls of a program, and a program with openat2 could give a file on a
writable mount set-uid bits, since the mode is in memory, where the seccomp filter cannot look. Each step opens a single
name and follows no link; whatever is renamed or replaced meanwhile, the next step starts from a folder that is held.
Links are read as text, those in /proc too, and paths may be longer than the kernel takes at once.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum, auto

_MAX_LINKS = 40  # as the kernel has it
_LOOK = os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC


class OutsideError(Exception):
    """The path, or a link on its way, leads out of the place where it starts."""


class ChangedError(Exception):
    """Folders were moved while we were between them."""


class Follow(Enum):
    """Which links are followed. `PARENTS`: all but a link that the path itself names."""

    ALL = auto()
    PARENTS = auto()
    NONE = auto()


@dataclass(frozen=True)
class RootFolder:
    """Where paths start. Confined: what leads out is an error; otherwise the place is its own root, as / is."""

    path: str
    seen_as: str
    is_confined: bool


@dataclass(frozen=True)
class Spot:
    """A name in a folder. The name is `.` for the place itself and for what ends in `..`."""

    folder: int
    name: str


class PathTrail:
    """A folder that is held open and the way to it, so that going up ends exactly where we came from.

    Holds two descriptors, however deep it goes.
    """

    def __init__(self, top: int) -> None:
        self._top = top
        self.folder = os.dup(top)
        self._above: list[tuple[int, int]] = []

    @property
    def depth(self) -> int:
        return len(self._above)

    def enter(self, name: str) -> None:
        descriptor = os.open(name, _LOOK, dir_fd=self.folder)
        self._above.append(_identity(self.folder))
        self._move_to(descriptor)

    def climb(self) -> None:
        """Up by one; the kernel's `..` of a folder that was moved meanwhile is another one, which we refuse."""
        self._move_to(os.open("..", _LOOK, dir_fd=self.folder))
        if _identity(self.folder) != self._above.pop():
            raise ChangedError

    def restart(self) -> None:
        self._above.clear()
        self._move_to(os.dup(self._top))

    def close(self) -> None:
        os.close(self.folder)

    def _move_to(self, descriptor: int) -> None:
        os.close(self.folder)
        self.folder = descriptor


def _identity(descriptor: int) -> tuple[int, int]:
    details = os.fstat(descriptor)
    return details.st_dev, details.st_ino


@contextmanager
def find(place: RootFolder, path: str, follow: Follow, *, make_parents: bool = False) -> Iterator[Spot]:
    """The spot that the path names; whether anything is there is for the caller to see."""
    top = os.open(place.path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        trail = PathTrail(top)
        try:
            name = _Search(place, trail, follow, make_parents).resolve(path)
            yield Spot(trail.folder, name)
        finally:
            trail.close()
    finally:
        os.close(top)


class _Search:
    def __init__(self, place: RootFolder, trail: PathTrail, follow: Follow, make_parents: bool) -> None:
        self._place, self._trail, self._follow, self._make_parents = place, trail, follow, make_parents
        self._pending: list[str] = []
        self._links = 0

    def resolve(self, path: str) -> str:
        """Moves the trail to the last folder and returns the last name."""
        self._push(path)
        while self._pending:
            name = self._pending.pop()
            if name == "..":
                self._climb()
            elif self._pending:
                self._pass_through(name)
            elif self._follow is not Follow.ALL or not self._jump(name):
                return name
        return "."

    def _push(self, path: str) -> None:
        self._pending += [name for name in reversed(path.split("/")) if name not in ("", ".")]

    def _climb(self) -> None:
        if self._trail.depth:
            self._trail.climb()
        elif self._place.is_confined:
            raise OutsideError

    def _pass_through(self, name: str) -> None:
        try:
            self._trail.enter(name)
        except NotADirectoryError:
            if self._follow is Follow.NONE or not self._jump(name):
                raise
        except FileNotFoundError:
            if not self._make_parents:
                raise
            self._make(name)

    def _make(self, name: str) -> None:
        with suppress(FileExistsError):  # another program made it first; entering checks what it is
            os.mkdir(name, 0o755, dir_fd=self._trail.folder)
        self._trail.enter(name)

    def _jump(self, name: str) -> bool:
        """Go on where the link leads; false if it is none."""
        try:
            target = os.readlink(name, dir_fd=self._trail.folder)
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOENT):
                return False
            raise
        self._links += 1
        if self._links > _MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        if target.startswith("/"):
            target = self._from_the_top(target)
        self._push(target)
        return True

    def _from_the_top(self, target: str) -> str:
        self._trail.restart()
        if not self._place.is_confined:
            return target
        # Programs know the workspace by its full path, so their links inside of it often spell it out.
        if target.startswith(self._place.seen_as + "/"):
            return target.removeprefix(self._place.seen_as + "/")
        raise OutsideError
