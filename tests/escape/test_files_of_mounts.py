"""Files, continued: mounts that the policy grants. The sandbox's user owns what is in them: only the mounts protect.

| attack | stopped by | succeeds without it (`ablation.py`) |
|---|---|---|
| changing a read-only mount | read-only mount, Landlock | `read-only-mounts, landlock` |
| leaving a mount by `..` or planted links | minimal root: the rest is not mounted | `minimal-root` |
| set-uid files on a writable mount | seccomp, which looks at every mode | `seccomp` |
| devices, file capabilities | no capabilities in the host's user namespace | `real-root` |
| leaving files of a stranger's | mounts are shown as owned by the sandbox's user | `mounts-by-owner` |
| neighbours of a file | it is mounted alone | `files-mounted-alone` |
| sockets of the host's services | such a mount is refused when the sandbox opens | `sockets-refused` |
| a socket left in a mount, which would be refused from then on | Landlock | `landlock` |
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from ordinary import own

from escape.conftest import MakeSandbox
from escape.laboratory import attack, number_of
from fumehood import AsyncSandbox, FumehoodError

pytestmark = pytest.mark.anyio


@pytest.fixture
def shared_folder(host_folder: Path, canary: str) -> Path:
    """To be mounted; what lies beside it is the host's alone."""
    (host_folder / "secret.txt").write_text(canary)
    folder = host_folder / "shared"
    (folder / "inner").mkdir(parents=True)
    (folder / "data.txt").write_text("original")
    (folder / "absolute").symlink_to(host_folder / "secret.txt")
    (folder / "relative").symlink_to("../secret.txt")
    own(folder)
    return folder


@pytest.fixture
async def reading_sandbox(make_sandbox: MakeSandbox, shared_folder: Path) -> AsyncIterator[AsyncSandbox]:
    mount = {"source": str(shared_folder), "target": "/data", "mode": "ro"}
    async with make_sandbox(filesystem={"mounts": [mount]}) as sandbox:
        yield sandbox


@pytest.fixture
async def writing_sandbox(make_sandbox: MakeSandbox, shared_folder: Path) -> AsyncIterator[AsyncSandbox]:
    mount = {"source": str(shared_folder), "target": "/data", "mode": "rw"}
    async with make_sandbox(filesystem={"mounts": [mount]}) as sandbox:
        yield sandbox


def snapshot(folder: Path) -> dict[str, tuple[Any, ...]]:
    """Everything that a write could have changed."""
    seen: dict[str, tuple[Any, ...]] = {}
    for path in (folder, *folder.rglob("*")):
        details = path.lstat()
        text = path.read_bytes() if path.is_file() and not path.is_symlink() else None
        attributes = [] if path.is_symlink() else os.listxattr(path)
        seen[str(path)] = (details.st_mode, details.st_uid, details.st_mtime_ns, details.st_size, text, attributes)
    return seen


CHANGES = {
    "opening it to write": "os.open('/data/data.txt', os.O_WRONLY)",
    "opening it to append": "os.open('/data/data.txt', os.O_WRONLY | os.O_APPEND)",
    "opening it truncated": "os.open('/data/data.txt', os.O_RDONLY | os.O_TRUNC)",
    "truncating": "os.truncate('/data/data.txt', 0)",
    "opening its descriptor anew": "os.open('/proc/self/fd/%d' % os.open('/data/data.txt', 0), os.O_WRONLY)",
    "opening its path descriptor": "os.open('/proc/self/fd/%d' % os.open('/data/data.txt', os.O_PATH), os.O_WRONLY)",
    "going around by the root of the process": "os.open('/proc/self/root/data/data.txt', os.O_WRONLY)",
    "mapping it shared": "mmap.mmap(os.open('/data/data.txt', 0), 8, mmap.MAP_SHARED, mmap.PROT_WRITE)",
    "creating": "os.open('/data/evil', os.O_CREAT | os.O_WRONLY)",
    "a nameless file": "os.open('/data', os.O_TMPFILE | os.O_RDWR)",
    "a folder": "os.mkdir('/data/evil')",
    "a symbolic link": "os.symlink('x', '/data/evil')",
    "a hard link": "os.link('/data/data.txt', '/data/evil')",
    "a hard link outside": "os.link('/data/data.txt', '/workspace/evil')",
    "a pipe": "os.mkfifo('/data/evil')",
    "a socket": "socket.socket(socket.AF_UNIX).bind('/data/evil')",
    "removing": "os.unlink('/data/data.txt')",
    "removing a folder": "os.rmdir('/data/inner')",
    "renaming": "os.rename('/data/data.txt', '/data/evil')",
    "moving out": "os.rename('/data/data.txt', '/workspace/evil')",
    "moving in": "(open('/workspace/own', 'w').close(), os.rename('/workspace/own', '/data/data.txt'))",
    "its mode": "os.chmod('/data/data.txt', 0o777)",
    "its owner": "os.chown('/data/data.txt', 1000, 1000)",
    "its time": "os.utime('/data/data.txt')",
    "an attribute": "os.setxattr('/data/data.txt', 'user.evil', b'x')",
    "an inode flag": "fcntl.ioctl(os.open('/data/data.txt', 0), 0x40086602, struct.pack('l', 0x80))",
    "the mount point itself": "os.rename('/data', '/evil')",
}
REFUSALS = ("EROFS", "EACCES", "EPERM", "EXDEV", "EBUSY", "ENOTSUP")


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_a_read_only_mount_cannot_be_changed_by(
    reading_sandbox: AsyncSandbox, shared_folder: Path, change: str
) -> None:
    before = snapshot(shared_folder)
    found = await attack(reading_sandbox, f"found = outcome(lambda: {change})")
    assert found in REFUSALS
    assert snapshot(shared_folder) == before


WAYS_OUT = {
    "up from the mount": "open('/data/../secret.txt')",
    "up from a descriptor of it": "open(os.open('../secret.txt', os.O_RDONLY, dir_fd=os.open('/data', os.O_PATH)))",
    "an absolute link in it": "open('/data/absolute')",
    "a relative link in it": "open('/data/relative')",
    "up from a folder that was moved meanwhile": """(
        os.mkdir('/data/deep'), os.chdir('/data/deep'), os.rename('/data/deep', '/data/inner/deep'),
        open('../../../secret.txt'))""",
}


@pytest.mark.parametrize("way", WAYS_OUT.values(), ids=WAYS_OUT)
async def test_a_mount_has_no_way_out(writing_sandbox: AsyncSandbox, way: str) -> None:
    assert await attack(writing_sandbox, f"found = outcome(lambda: {way})") == "ENOENT"


SET_ID_FILES = {
    "chmod": "os.chmod('/data/data.txt', 0o4755)",
    "chmod of the group's bit": "os.chmod('/data/data.txt', 0o2755)",
    "fchmod": "os.fchmod(os.open('/data/data.txt', os.O_RDWR), 0o4755)",
    "fchmodat": "os.chmod('data.txt', 0o4755, dir_fd=os.open('/data', os.O_PATH))",
    "fchmodat2": "call(452, -100, b'/data/data.txt', 0o4755, 0)",
    "open": "os.open('/data/evil', os.O_CREAT | os.O_WRONLY, 0o4755)",
    "openat": "os.open('evil', os.O_CREAT | os.O_WRONLY, 0o4755, dir_fd=os.open('/data', os.O_PATH))",
    "openat2": "call(437, -100, b'/data/evil', struct.pack('QQQ', os.O_CREAT | os.O_WRONLY, 0o4755, 0), 24)",
    "a nameless file": "os.open('/data', os.O_TMPFILE | os.O_RDWR, 0o4755)",
    "creat": "call(creat, b'/data/evil', 0o4755)",
    "mknod": "os.mknod('/data/evil', stat.S_IFREG | 0o4755)",
    "mkdir": "call(mkdirat, -100, b'/data/evil', 0o2755)",
    "upper bits in the mode": "call(fchmodat, -100, b'/data/data.txt', 0x7fff00000000 | 0o4755)",
}


@pytest.mark.parametrize("way", SET_ID_FILES.values(), ids=SET_ID_FILES)
async def test_a_set_uid_file_cannot_be_left_on_the_host_by(
    writing_sandbox: AsyncSandbox, shared_folder: Path, way: str
) -> None:
    """Without this, whoever runs it on the host runs it as the owner of the folder."""
    numbers = {name: number_of(name) for name in ("creat", "mkdirat", "fchmodat") if name in way}
    found = await attack(writing_sandbox, f"os.umask(0)\nfound = outcome(lambda: {way})", **numbers)
    assert found in ("EPERM", "ENOSYS")
    assert not any(mode & (stat.S_ISUID | stat.S_ISGID) for mode, *_ in snapshot(shared_folder).values())


NODES = {
    "a block device": "os.mknod('/data/evil', stat.S_IFBLK | 0o666, os.makedev(254, 0))",
    "a character device": "os.mknod('/data/evil', stat.S_IFCHR | 0o666, os.makedev(1, 1))",
    "a block device in the workspace": "os.mknod('/workspace/evil', stat.S_IFBLK | 0o666, os.makedev(254, 0))",
    "file capabilities": """os.setxattr('/data/data.txt', 'security.capability',
        bytes.fromhex('0000000200200000002000000000000000000000'))""",
    "a trusted attribute": "os.setxattr('/data/data.txt', 'trusted.evil', b'x')",
}


@pytest.mark.parametrize("way", NODES.values(), ids=NODES)
async def test_a_writable_mount_takes_no_special_files(writing_sandbox: AsyncSandbox, way: str) -> None:
    assert await attack(writing_sandbox, f"found = outcome(lambda: {way})") in ("EPERM", "EACCES", "ENOTSUP")


async def test_what_is_written_belongs_to_the_owner_of_the_folder(
    writing_sandbox: AsyncSandbox, shared_folder: Path
) -> None:
    os.chmod(shared_folder, 0o777)  # so that a stranger could write as well, and leave files of his own
    await attack(writing_sandbox, "found = open('/data/new', 'w').write('x')")
    owners = {owner for _, owner, *_ in snapshot(shared_folder).values()}
    assert owners == {shared_folder.stat().st_uid}


async def test_a_single_file_that_is_mounted_shows_no_neighbours(
    make_sandbox: MakeSandbox, shared_folder: Path
) -> None:
    mount = {"source": str(shared_folder / "data.txt"), "target": "/data/file", "mode": "rw"}
    async with make_sandbox(filesystem={"mounts": [mount]}) as sandbox:
        found = await attack(sandbox, "found = [os.listdir('/data'), outcome(lambda: os.unlink('/data/file'))]")
    assert found[0] == ["file"]
    assert found[1] in REFUSALS


@pytest.fixture
def listener(shared_folder: Path) -> Iterator[Path]:
    """A service of the host's that takes orders from whoever connects."""
    place = shared_folder / "inner" / "service.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(place))
        place.chmod(0o777)
        own(shared_folder)
        listening.listen()
        yield place


@pytest.mark.parametrize("mode", ["ro", "rw"])
async def test_a_socket_in_a_mount_cannot_be_reached(
    make_sandbox: MakeSandbox, listener: Path, shared_folder: Path, mode: str
) -> None:
    mount = {"source": str(shared_folder), "target": "/data", "mode": mode}
    code = "found = outcome(lambda: socket.socket(socket.AF_UNIX).connect('/data/inner/service.sock'))"
    found = "it did not open"
    with suppress(FumehoodError):
        async with make_sandbox(filesystem={"mounts": [mount]}) as sandbox:
            found = await attack(sandbox, code)
    assert not found.startswith("GOT")


async def test_a_socket_that_is_mounted_by_itself_cannot_be_reached(make_sandbox: MakeSandbox, listener: Path) -> None:
    mount = {"source": str(listener), "target": "/data/s"}
    found = "it did not open"
    with suppress(FumehoodError):
        async with make_sandbox(filesystem={"mounts": [mount]}) as sandbox:
            code = "found = outcome(lambda: socket.socket(socket.AF_UNIX).connect('/data/s'))"
            found = await attack(sandbox, code)
    assert not found.startswith("GOT")


SOCKETS = {
    "binding one": "socket.socket(socket.AF_UNIX).bind('/data/evil')",
    "making a node": "os.mknod('/data/evil', stat.S_IFSOCK | 0o666)",
    "moving one": "(socket.socket(socket.AF_UNIX).bind('/workspace/evil'), os.rename('/workspace/evil', '/data/evil'))",
    "linking one": "(socket.socket(socket.AF_UNIX).bind('/workspace/evil'), os.link('/workspace/evil', '/data/evil'))",
}


@pytest.mark.parametrize("way", SOCKETS.values(), ids=SOCKETS)
async def test_no_socket_can_be_left_in_a_mount_by(
    writing_sandbox: AsyncSandbox, shared_folder: Path, way: str
) -> None:
    """The mount would be refused from then on: a program could lock its owner out of it."""
    await attack(writing_sandbox, f"found = outcome(lambda: {way})")
    assert not os.path.lexists(shared_folder / "evil")
