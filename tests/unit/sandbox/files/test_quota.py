"""A place with little room, as the sandbox's workspace is one: told at once, and nothing half is left."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path

import pytest
from requirements import require
from unit.sandbox.files.rooms import files_through

from fumehood.backends.conversation import SocketConversation
from fumehood.errors import DeniedError
from fumehood.policy import Policy
from fumehood.sandbox.files import AsyncFiles

pytestmark = pytest.mark.anyio

SOURCE = Path(__file__).parents[4] / "src" / "fumehood"
SERVICE = """
import resource, socket, sys
sys.path.insert(0, sys.argv[1])
from guest.contract import frames
from guest.files import service
from guest.isolation import kernel
root, limit = sys.argv[3], int(sys.argv[4])
kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
kernel.mount("workspace", root + "/workspace", "tmpfs", 0, "size=1m,nr_inodes=20,mode=755")
kernel.mount("data", root + "/data", "tmpfs", kernel.MS_RDONLY, "")
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
service.serve(frames.FrameSocket(socket.socket(fileno=int(sys.argv[2]))), root, root + "/workspace")
"""


@asynccontextmanager
async def small_room(root: Path, file_limit: int = 0) -> AsyncIterator[AsyncFiles]:
    """One mebibyte and twenty names, and a mount that is read-only; the service is a process of its own."""
    require(shutil.which("unshare"), "needs util-linux")
    for name in ("workspace", "data"):
        (root / name).mkdir()
    ours, theirs = socket.socketpair()
    command = ["unshare", "--mount", *(["--map-root-user"] if os.getuid() else []), sys.executable, "-c", SERVICE]
    arguments = [str(SOURCE), str(theirs.fileno()), str(root), str(file_limit)]
    process = subprocess.Popen([*command, *arguments], pass_fds=[theirs.fileno()])  # noqa: ASYNC220
    theirs.close()
    conversation = SocketConversation(ours)
    try:
        policy = Policy(filesystem={"outputs": ["**"], "workspace": {"size": "1M"}}, resources={"inodes": 20})
        yield files_through(policy, lambda: nullcontext(conversation))
    finally:
        conversation.close()
        assert process.wait() == 0


async def test_a_full_workspace_is_told_with_its_size(tmp_path: Path) -> None:
    async with small_room(tmp_path) as files:
        await files.write("kept", b"x")
        for size in (2 * 2**20, 20 * 2**20):
            with pytest.raises(DeniedError, match=r"workspace is full: it holds 1M .* filesystem\.workspace\.size"):
                await files.write("big", bytes(size))
        assert [entry.name for entry in await files.list()] == ["kept"]
        await files.write("fits", bytes(900_000))


async def test_too_many_names_are_told_with_their_number(tmp_path: Path) -> None:
    async with small_room(tmp_path) as files:
        for number in range(18):
            await files.write(f"{number}", b"")
        with pytest.raises(DeniedError, match=r"in 20 files and folders; .* resources\.inodes"):
            await files.write("a/b/c", b"")
        with pytest.raises(DeniedError, match="is full"):
            await files.mkdir("folder")


async def test_an_upload_that_does_not_fit_leaves_no_part_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "big").touch()
    os.truncate(tmp_path / "big", 50 * 2**20)
    async with small_room(tmp_path) as files:
        with pytest.raises(DeniedError, match="is full"):
            await files.upload(tmp_path / "big", "in/big")
        assert await files.list("in") == []


async def test_a_file_larger_than_files_may_be_is_refused(tmp_path: Path) -> None:
    async with small_room(tmp_path, file_limit=100_000) as files:
        with pytest.raises(DeniedError, match="larger than a file may be"):
            await files.write("big", bytes(200_000))
        assert await files.list() == []


async def test_a_read_only_mount_is_told_as_such(tmp_path: Path) -> None:
    async with small_room(tmp_path) as files:
        for action in (files.write("/data/x", b"x"), files.mkdir("/data/y/z")):
            with pytest.raises(DeniedError, match="read-only in the sandbox; use the workspace"):
                await action
        assert await files.list("/data") == []


async def test_a_mount_point_cannot_be_removed(tmp_path: Path) -> None:
    async with small_room(tmp_path) as files:
        with pytest.raises(DeniedError, match="mount of the policy's"):
            await files.remove("/data", recursive=True)
