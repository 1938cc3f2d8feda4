"""The file service: carries out what the host asks to do with files, from inside the sandbox.

It is a process like a run, with the isolation of a run, that never runs a user's code. Whatever it can be tricked into
by programs that work on the same files, it reaches nothing that those programs could not reach themselves.

A request is one message and is answered by one or more; the last answer says `done` or `error`. Data flows in messages
of its own. While the host sends data, every message but the last is answered with `more`, so that the host learns of a
full disk at once and not when it has sent everything.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from hashlib import sha256
from typing import Any

from ..contract import frames
from ..contract.limits import WATCH_SECONDS
from ..contract.paths import hidden_name
from ..isolation.descriptors import keep_one
from . import entries
from .atomic_write import Draft, write_all
from .changes import FolderWatch
from .conversation import FileRefusedError, Host, HungUpError, Incoming
from .removal import remove_tree
from .resolution import ChangedError, Follow, OutsideError, RootFolder, Spot, find

_CHUNK_BYTES = 1024 * 1024
_FIRST_CHUNK_BYTES = 64 * 1024
_TMP = "/tmp"
_LOOK_SECONDS, _PAUSES_PER_LOOK = 0.1, 10.0


def become_service(link: int) -> None:
    """In a process of its own, which holds the conversation with the host and nothing else of ours."""
    serve(frames.FrameSocket(socket.socket(fileno=keep_one(link))))


def serve(conversation: frames.FrameSocket, root: str = "/", workspace: str = "/workspace") -> None:
    """Answers until the host hangs up."""
    service = _Service(Host(conversation), root, workspace)
    with suppress(HungUpError):
        while True:
            service.answer_next()


class _Service:
    def __init__(self, host: Host, root: str, workspace: str) -> None:
        self._host = host
        self._root = RootFolder(root, "", is_confined=False)
        self._workspace = RootFolder(workspace, "/workspace", is_confined=True)
        self._tmp = RootFolder(f"{root.rstrip('/')}{_TMP}", _TMP, is_confined=True)
        self._operations: dict[str, Callable[[frames.Header], frames.Header]] = {
            "stat": self._stat,
            "list": self._list,
            "mkdir": self._mkdir,
            "remove": self._remove,
            "rename": self._rename,
            "link": self._link,
            "read": self._read,
            "digest": self._digest,
            "mode": self._mode,
            "watch": self._watch,
            "changes": self._changes,
            "room": self._room,
        }
        self._watched: FolderWatch | None = None

    def answer_next(self) -> None:
        header, body = self._host.receive()
        incoming = Incoming(self._host, header, body) if header["do"] == "write" else None
        try:
            done = self._write(header, incoming) if incoming else self._operations[header["do"]](header)
            self._host.send({"done": done})
        except (OSError, OutsideError, ChangedError, FileRefusedError) as error:
            self._host.send({"error": _told(error)})
            if incoming:
                incoming.skip_rest()

    @contextmanager
    def _find(self, header: frames.Header, follow: Follow, *, make_parents: bool = False) -> Iterator[Spot]:
        place, path = self._start_of(header["path"])
        if not header.get("links", True):
            follow = Follow.NONE
        with find(place, path, follow, make_parents=make_parents) as spot:
            yield spot

    def _start_of(self, path: str) -> tuple[RootFolder, str]:
        """Links that programs make in their own folders lead nowhere else."""
        if not path.startswith("/"):
            return self._workspace, path
        if path == _TMP or path.startswith(f"{_TMP}/"):
            return self._tmp, path.removeprefix(_TMP)
        return self._root, path

    def _stat(self, header: frames.Header) -> frames.Header:
        with self._find(header, Follow.ALL if header["follow"] else Follow.PARENTS) as spot:
            return entries.describe(spot.folder, spot.name)

    def _list(self, header: frames.Header) -> frames.Header:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        with self._find(header, Follow.ALL) as spot, _opened(spot, flags) as folder:
            for batch in entries.batches(folder, header["limit"], header.get("most_digested")):
                self._host.send({"entries": True}, batch)
        return {}

    def _mkdir(self, header: frames.Header) -> frames.Header:
        parents: bool = header["parents"]
        with self._find(header, Follow.PARENTS, make_parents=parents) as spot:
            try:
                os.mkdir(spot.name, 0o755, dir_fd=spot.folder)
            except FileExistsError:
                if not parents or not self._is_folder(header):
                    raise
        return {}

    def _is_folder(self, header: frames.Header) -> bool:
        with self._find(header, Follow.ALL) as spot:
            return stat.S_ISDIR(os.stat(spot.name, dir_fd=spot.folder, follow_symlinks=False).st_mode)

    def _remove(self, header: frames.Header) -> frames.Header:
        with self._find(header, Follow.PARENTS) as spot:
            _refuse_the_top(spot)
            details = os.stat(spot.name, dir_fd=spot.folder, follow_symlinks=False)
            if not stat.S_ISDIR(details.st_mode):
                os.unlink(spot.name, dir_fd=spot.folder)
            elif header["recursive"]:
                remove_tree(spot.folder, spot.name)
            else:
                os.rmdir(spot.name, dir_fd=spot.folder)
        return {}

    def _rename(self, header: frames.Header) -> frames.Header:
        """As programs do it: what has the new name goes, unless it is a folder with something in it."""
        target = {"path": header["to"], "links": header.get("links", True)}
        with (
            self._find(header, Follow.PARENTS) as spot,
            self._find(target, Follow.PARENTS, make_parents=True) as there,
        ):
            _refuse_the_top(spot)
            _refuse_the_top(there)
            os.rename(spot.name, there.name, src_dir_fd=spot.folder, dst_dir_fd=there.folder)
            return entries.describe(there.folder, there.name)

    def _link(self, header: frames.Header) -> frames.Header:
        with self._find(header, Follow.PARENTS, make_parents=True) as spot:
            _refuse_the_top(spot)
            name = hidden_name()
            os.symlink(header["target"], name, dir_fd=spot.folder)
            try:
                os.rename(name, spot.name, src_dir_fd=spot.folder, dst_dir_fd=spot.folder)
            except OSError:
                os.unlink(name, dir_fd=spot.folder)
                raise
        return {}

    def _mode(self, header: frames.Header) -> frames.Header:
        """Of a folder, as it was saved; what was to be put into it is there."""
        with self._find(header, Follow.NONE) as spot:
            times = (header["modified_ns"], header["modified_ns"])
            os.utime(spot.name, ns=times, dir_fd=spot.folder, follow_symlinks=False)
            os.chmod(spot.name, header["mode"] & 0o777, dir_fd=spot.folder)
        return {}

    def _room(self, header: frames.Header) -> frames.Header:
        """How much the workspace holds, and how much it can."""
        room = os.statvfs(self._workspace.path)
        return {"used": (room.f_blocks - room.f_bfree) * room.f_frsize, "total": room.f_blocks * room.f_frsize}

    def _write(self, header: frames.Header, incoming: Incoming) -> frames.Header:
        if "mode" in header:
            return self._restore(header, incoming)
        mode = 0o755 if header["executable"] else 0o644
        digest, size = sha256(), 0
        as_program: bool = header.get("as_program", False)
        with self._find(header, Follow.ALL if as_program else Follow.PARENTS, make_parents=True) as spot:
            _refuse_folder(spot)
            kept = _mode_of_writable(spot) if as_program else None
            with Draft(spot.folder, mode) as draft:
                if kept is not None:
                    draft.change_mode(kept)
                for chunk in incoming.chunks():
                    draft.write(chunk)
                    digest.update(chunk)
                    size += len(chunk)
                incoming.check(digest.hexdigest())
                draft.publish(spot.name)
                version = draft.version()
        return {"size": size, "sha256": digest.hexdigest(), "version": version}

    def _restore(self, header: frames.Header, incoming: Incoming) -> frames.Header:
        """A file of a snapshot, as it was when it was saved, in a workspace that no program has seen yet.

        So it is written in its place, and the host, which has compared its digest, needs no other one.
        """
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        size = 0
        with self._find(header, Follow.NONE) as spot, _opened(spot, flags) as file:
            for chunk in incoming.chunks():
                write_all(file, chunk)
                size += len(chunk)
            incoming.check_complete()
            os.fchmod(file, header["mode"] & 0o777)
            os.utime(file, ns=(header["modified_ns"], header["modified_ns"]))
            details = os.fstat(file)
        return {"size": size, "version": [details.st_ino, details.st_ctime_ns]}

    def _read(self, header: frames.Header) -> frames.Header:
        if header.get("saves", False):
            return self._read_for_saving(header)
        return self._go_through(header, lambda chunk, size: self._host.send({"data": True, "of": size}, chunk))

    def _digest(self, header: frames.Header) -> frames.Header:
        return self._go_through(header, lambda chunk, size: None)

    def _read_for_saving(self, header: frames.Header) -> frames.Header:
        """Also a file that its owner may not read. The host computes the digest that counts, so none is sent."""
        with self._find(header, Follow.NONE) as spot, _opened_for_saving(spot) as file:
            size = _checked_size(file, header["limit"])
            return {"size": sum(map(self._send_data, _chunks(file, size, size)))}

    def _send_data(self, chunk: memoryview) -> int:
        self._host.send({"data": True}, chunk)
        return len(chunk)

    def _watch(self, header: frames.Header) -> frames.Header:
        """Begins to watch a folder; one for each conversation, until it ends."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        with self._find(header, Follow.ALL) as spot:
            self._watched = FolderWatch(os.open(spot.name, flags, dir_fd=spot.folder), recursive=header["recursive"])
        return {}

    def _changes(self, header: frames.Header) -> frames.Header:
        """The next changes, as soon as there are any; none after a while."""
        if self._watched is None:
            raise FileRefusedError("not watched")
        until = time.monotonic() + min(header["wait"], WATCH_SECONDS)
        while True:
            begun = time.monotonic()
            changes, now = self._watched.next_changes(), time.monotonic()
            if changes or now >= until:
                self._host.send({"changes": True}, json.dumps(changes).encode())
                return {}
            # A large folder must not cost the sandbox all of its time.
            self._host.pause(max(_LOOK_SECONDS, _PAUSES_PER_LOOK * (now - begun)))

    def _go_through(self, header: frames.Header, use: Callable[[memoryview, int], None]) -> frames.Header:
        """`use` gets each chunk, and the size of the whole."""
        digest, seen = sha256(), 0
        with self._find(header, Follow.ALL) as spot, _opened_for_reading(spot) as file:
            size = _checked_size(file, header["limit"])
            for chunk in _chunks(file, size, _FIRST_CHUNK_BYTES):
                use(chunk, size)  # first, so that the host has something to do meanwhile
                digest.update(chunk)
                seen += len(chunk)
        return {"size": seen, "sha256": digest.hexdigest()}


def _checked_size(file: int, limit: int) -> int:
    size = os.fstat(file).st_size
    if size > limit:
        raise FileRefusedError("too large", size=size)
    return size


def _chunks(file: int, size: int, first: int) -> Iterator[memoryview]:
    """As much as the file has at the start, in one buffer: one that grows faster must not be read for ever.

    `first` is the most of the first chunk, for receivers who are not to wait for a whole one.
    """
    buffer, most, left = memoryview(bytearray(min(size, _CHUNK_BYTES))), first, size
    while left:
        count = os.readv(file, [buffer[: min(left, most)]])
        if not count:
            return
        yield buffer[:count]
        most, left = len(buffer), left - count


@contextmanager
def _opened(spot: Spot, flags: int) -> Iterator[int]:
    descriptor = os.open(spot.name, flags, 0o600, dir_fd=spot.folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _opened_for_reading(spot: Spot) -> Iterator[int]:
    """Regular files only. Looks before it opens, since opening alone can mean something to a device or a pipe."""
    _check_regular(os.stat(spot.name, dir_fd=spot.folder, follow_symlinks=False))
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC
    with _opened(spot, flags) as descriptor:
        _check_regular(os.fstat(descriptor))
        yield descriptor


def _opened_for_saving(spot: Spot) -> AbstractContextManager[int]:
    details = os.stat(spot.name, dir_fd=spot.folder, follow_symlinks=False)
    _check_regular(details)
    return entries.opened_for_saving(spot.folder, spot.name, stat.S_IMODE(details.st_mode))


def _check_regular(details: os.stat_result) -> None:
    if stat.S_ISDIR(details.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(details.st_mode):
        raise FileRefusedError("not a file", kind=entries.kind_of(details))


def _refuse_folder(spot: Spot) -> None:
    """Before any data is sent: at the end the kernel would refuse it anyway."""
    _refuse_the_top(spot)
    try:
        details = os.stat(spot.name, dir_fd=spot.folder, follow_symlinks=False)
    except FileNotFoundError:
        return
    if stat.S_ISDIR(details.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))


def _mode_of_writable(spot: Spot) -> int | None:
    """The mode of a file that a program could open and write to; None if there is none yet."""
    try:
        details = os.stat(spot.name, dir_fd=spot.folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    _check_regular(details)
    if not os.access(spot.name, os.W_OK, dir_fd=spot.folder):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return stat.S_IMODE(details.st_mode) & 0o777


def _refuse_the_top(spot: Spot) -> None:
    if spot.name == ".":
        raise FileRefusedError("the top")


def _told(error: Exception) -> dict[str, Any]:
    match error:
        case OSError():
            return {"reason": errno.errorcode.get(error.errno or 0, "EIO")}
        case OutsideError():
            return {"reason": "outside"}
        case ChangedError():
            return {"reason": "changed"}
        case FileRefusedError():
            return {"reason": str(error), **error.details}
        case _:
            raise error
