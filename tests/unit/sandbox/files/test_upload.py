"""AsyncFiles and trees of the host's go in; what is interrupted leaves nothing behind."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from unit.sandbox.files.rooms import Room, files_through, talking_to

from fumehood.errors import SandboxError, UsageError
from fumehood.guest.contract import frames
from fumehood.guest.files import service as guest_files
from fumehood.sandbox.files import AsyncFiles, protocol

pytestmark = pytest.mark.anyio


async def test_a_file_keeps_its_content_and_its_executable_bit(room: Room, tmp_path: Path) -> None:
    (tmp_path / "tool").write_bytes(os.urandom(3_000_000))
    (tmp_path / "tool").chmod(0o6711)
    transfer = await room.files.upload(tmp_path / "tool", "bin/tool")
    assert (transfer.files, transfer.bytes, transfer.skipped) == (1, 3_000_000, ())
    assert (room.workspace / "bin/tool").read_bytes() == (tmp_path / "tool").read_bytes()
    assert (room.workspace / "bin/tool").stat().st_mode & 0o7777 == 0o755


@pytest.mark.parametrize("path", ["in/", "in/.", "/workspace/in/"])
async def test_a_slash_at_the_end_means_into_the_folder(room: Room, tmp_path: Path, path: str) -> None:
    (tmp_path / "x").write_text("x")
    await room.files.upload(tmp_path / "x", path)
    assert (room.workspace / "in/x").read_text() == "x"


@pytest.mark.parametrize("path", ["", ".", "/workspace"])
async def test_the_workspace_is_a_folder_to_go_into(room: Room, tmp_path: Path, path: str) -> None:
    (tmp_path / "x").write_text("x")
    await room.files.upload(str(tmp_path / "x"), path)
    assert (room.workspace / "x").read_text() == "x"


async def test_a_tree_arrives_with_what_can_stay_inside_of_it(room: Room, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "a/b").mkdir(parents=True)
    (tree / "empty").mkdir()
    (tree / ".git").mkdir()
    (tree / ".git/config").touch()
    (tree / "a/b/data").write_text("data")
    (tree / os.fsdecode(b"\xff")).write_text("odd")
    (tree / "a/good").symlink_to("../a/b/data")
    for name, target in {"up": "..", "far": "../../x", "absolute": "/etc/passwd", "back": "a/../a"}.items():
        (tree / name).symlink_to(target)
    os.mkfifo(tree / "pipe")
    transfer = await room.files.upload(tree, "in")
    assert (transfer.files, transfer.bytes) == (3, 7)
    assert sorted(item.path for item in transfer.skipped) == ["absolute", "back", "far", "pipe", "up"]
    assert (room.workspace / "in/a/good").read_text() == "data"
    assert (room.workspace / "in/empty").is_dir()
    assert (room.workspace / "in" / os.fsdecode(b"\xff")).read_text() == "odd"
    assert not any(name.startswith(".hood") for _, _, names in os.walk(room.workspace) for name in names)


async def test_a_folder_that_becomes_a_link_while_a_tree_goes_in_leads_nowhere(
    room: Room, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program in another sandbox has the tree mounted, and waits until its folders were looked at."""
    tree, secret = tmp_path / "tree", tmp_path / "secret"
    for folder in (tree / "later", tree / "sooner", secret):
        folder.mkdir(parents=True)
    (tree / "sooner/x").touch()
    (secret / "key").write_text("the user's key")
    store = protocol.store

    async def swap_and_store(*arguments: Any) -> protocol.StoredFile:
        (tree / "later").rmdir()
        (tree / "later").symlink_to(secret)
        return await store(*arguments)

    monkeypatch.setattr(protocol, "store", swap_and_store)
    with suppress(UsageError):
        await room.files.upload(tree, "in")
    assert (tree / "later").is_symlink()
    assert not [*room.workspace.rglob("key")]


async def test_a_folder_that_cannot_be_read_is_named(room: Room) -> None:
    """Of the links here, the one of the descriptor that lists them is gone when it is read."""
    with pytest.raises(UsageError, match=r"'/proc/self/fd/[0-9]+' cannot be read: No such file"):
        await room.files.upload("/proc/self/fd", "in")


async def test_a_tree_is_laid_over_what_is_there(room: Room, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/x").write_text("new")
    await room.files.write("in/x", b"old")
    await room.files.write("in/y", b"kept")
    await room.files.upload(tmp_path / "tree", "in")
    assert (room.workspace / "in/x").read_text() == "new"
    assert (room.workspace / "in/y").read_text() == "kept"


async def test_what_cannot_be_uploaded_is_one_clear_error(room: Room, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").touch()
    (room.workspace / "folder").mkdir()
    with pytest.raises(UsageError, match="No such file"):
        await room.files.upload(tmp_path / "missing", "x")
    with pytest.raises(UsageError, match="neither a file nor a folder"):
        await room.files.upload(tmp_path / "pipe", "x")
    with pytest.raises(UsageError, match="is a folder; name a file in it"):
        await room.files.upload(tmp_path / "file", "folder")
    assert os.listdir(room.workspace) == ["folder"]


async def test_an_upload_that_is_cancelled_leaves_no_part_of_a_file(room: Room) -> None:
    with anyio.CancelScope() as scope:
        async with room.converse() as conversation:
            request = {"do": "write", "path": "x", "executable": False}
            await protocol.store(conversation, request, Cancelling(scope, room.workspace))
    assert scope.cancelled_caught
    assert os.listdir(room.workspace) == []


class Cancelling:
    """Data without end; cancels its reader when some of it is inside."""

    def __init__(self, scope: anyio.CancelScope, folder: Path) -> None:
        self._scope, self._folder, self._calls = scope, folder, 0

    async def next(self) -> tuple[bytes, bool]:
        self._calls += 1
        assert os.listdir(self._folder) == []
        if self._calls == 10:
            self._scope.cancel()
        return bytes(protocol.CHUNK_BYTES), False

    def sha256(self) -> str:
        return ""


class Failing:
    def __init__(self, after: int) -> None:
        self._left = after

    async def next(self) -> tuple[bytes, bool]:
        if not self._left:
            raise OSError(5, "the disk of the host is broken")
        self._left -= 1
        return bytes(protocol.CHUNK_BYTES), False

    def sha256(self) -> str:
        return ""


@pytest.mark.parametrize("after", [0, 1, 3, 4, 5, 9])
async def test_a_source_that_fails_half_way_leaves_no_file_and_a_conversation_that_goes_on(
    room: Room, after: int
) -> None:
    async with room.converse() as conversation:
        with pytest.raises(OSError, match="broken"):
            await protocol.store(conversation, {"do": "write", "path": "x", "executable": False}, Failing(after))
        assert await protocol.list_folder(conversation, "", limit=10) == []


async def test_data_that_changes_on_its_way_is_dropped(room: Room) -> None:
    """Somebody in between flips a bit of what goes in."""
    with pytest.raises(SandboxError, match="digests differ"):
        async with flipping(room, b"precious", b"previous") as files:
            await files.write("x", b"precious")
    assert os.listdir(room.workspace) == []


async def test_data_that_changes_on_its_way_out_is_an_error(room: Room) -> None:
    (room.workspace / "x").write_bytes(b"precious")
    with pytest.raises(SandboxError, match="did not arrive as it was sent"):
        async with flipping(room, b"precious", b"previous") as files:
            await files.read("x")


@asynccontextmanager
async def flipping(room: Room, old: bytes, new: bytes) -> AsyncIterator[AsyncFiles]:
    """The room's files, through a line that replaces one word in either direction."""

    def relay(source: socket.socket, target: socket.socket) -> None:
        while data := source.recv(65536):
            target.sendall(data.replace(old, new))
        target.shutdown(socket.SHUT_WR)

    def serve(stream: socket.socket) -> None:
        near, far = socket.socketpair()
        with near, far:
            back = threading.Thread(target=relay, args=(near, stream))
            forth = threading.Thread(target=relay, args=(stream, near))
            back.start()
            forth.start()
            guest_files.serve(frames.FrameSocket(far), str(room.root), str(room.workspace))
            far.shutdown(socket.SHUT_RDWR)
            back.join()
            forth.join()

    async with talking_to(serve) as conversation:
        yield files_through(room.policy, lambda: nullcontext(conversation))
