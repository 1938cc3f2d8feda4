"""What comes out is data, in a new place, complete or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import anyio
import pytest
import sampling
from unit.sandbox.files.rooms import Room

from fumehood.errors import DeniedError, UsageError
from fumehood.policy import Policy
from fumehood.sandbox.files import AsyncFiles

pytestmark = pytest.mark.anyio
SIZE = sampling.amount(64, whole=100) * 2**20


@pytest.fixture
def target(tmp_path: Path) -> Path:
    (tmp_path / "host").mkdir()
    return tmp_path / "host" / "target"


def modes(top: Path) -> set[int]:
    return {stat.S_IMODE(path.lstat().st_mode) for path in top.rglob("*") if stat.S_ISREG(path.lstat().st_mode)}


def leftovers(target: Path) -> list[str]:
    return sorted(os.listdir(target.parent))


async def test_a_file_comes_out_without_its_executable_bit(room: Room, target: Path) -> None:
    (room.workspace / "x").write_bytes(os.urandom(3_000_000))
    (room.workspace / "x").chmod(0o6755)
    transfer = await room.files.download("x", target)
    assert (transfer.files, transfer.bytes) == (1, 3_000_000)
    assert target.read_bytes() == (room.workspace / "x").read_bytes()
    assert stat.S_IMODE(target.stat().st_mode) == 0o644
    assert leftovers(target) == ["target"]


async def test_a_tree_comes_out_as_data(room: Room, target: Path) -> None:
    for path in ("out/a/b/data", "out/tool", "out/.git/hooks/pre-commit", "out/sub/.GIT", "out/.hidden"):
        await room.files.write(path, path.encode(), executable=True)
    (room.workspace / "out/empty").mkdir()
    (room.workspace / "out/empty").chmod(0o2777)
    os.mkfifo(room.workspace / "out/pipe")
    os.link(room.workspace / "out/tool", room.workspace / "out/second name")
    links = {"good": "a/b/data", "a/up": "../tool", "dangling": "no/where", "chain": "good"}
    bad = {
        "absolute": "/etc/passwd",
        "far": "../x",
        "back": "a/../../x",
        "dot": ".",
        "a/two": "../../out/tool",
        "nl": "/\n",
    }
    for name, link in {**links, **bad}.items():
        (room.workspace / "out" / name).symlink_to(link)
    transfer = await room.files.download("out", target)
    assert transfer.files == 4
    assert {name: os.readlink(target / name) for name in links} == links
    named = {item.path.removeprefix("out/") for item in transfer.skipped}
    assert named == {*bad, "pipe", ".git", "sub/.GIT"}
    assert transfer.skipped_count == len(named)
    assert modes(target) == {0o644}
    assert stat.S_IMODE((target / "empty").stat().st_mode) == 0o755
    assert (target / "second name").read_bytes() == b"out/tool"
    assert (target / "second name").stat().st_nlink == 1
    assert leftovers(target) == ["target"]


async def test_version_control_comes_out_only_when_asked(room: Room, target: Path) -> None:
    await room.files.write("out/.git/config", b"x")
    with pytest.raises(UsageError, match="git=True"):
        await room.files.download("out/.git", target)
    await room.files.download("out", target, git=True)
    assert (target / ".git/config").read_text() == "x"


async def test_only_what_outputs_name_comes_out(room: Room, target: Path) -> None:
    for path in ("out/a.csv", "out/b.txt", "out/deep/c.csv", "private/d.csv", "out/other/e.txt"):
        await room.files.write(path, b"x")
    room.policy = Policy(filesystem={"outputs": ["out/**/*.csv"]})
    transfer = await room.files.download("", target)
    assert sorted(str(path.relative_to(target)) for path in target.rglob("*.*")) == ["out/a.csv", "out/deep/c.csv"]
    assert {(item.path, item.reason) for item in transfer.skipped} == {
        (path, "filesystem.outputs does not name it") for path in ("out/b.txt", "private", "out/other/e.txt")
    }
    assert not (target / "out/other").exists()


@pytest.mark.parametrize("path", ["private", "private/x", "/etc", "out/x.txt", "out/x.csv/y"])
async def test_what_no_pattern_can_name_is_denied(room: Room, target: Path, path: str) -> None:
    await room.files.write("private/x", b"")
    room.policy = Policy(filesystem={"outputs": ["out/*.csv"]})
    with pytest.raises(DeniedError):
        await room.files.download(path, target)
    assert leftovers(target) == []


async def test_a_pattern_for_what_is_below_does_not_name_a_file_itself(room: Room, target: Path) -> None:
    await room.files.write("out", b"")
    room.policy = Policy(filesystem={"outputs": ["out/**"]})
    with pytest.raises(DeniedError, match=r"filesystem.outputs: \['out'\]"):
        await room.files.download("out", target)


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
async def test_nothing_is_replaced(room: Room, target: Path, kind: str) -> None:
    await room.files.write("x", b"new")
    await room.files.write("tree/x", b"new")
    if kind == "folder":
        target.mkdir()
        (target / "x").write_text("old")
        (target / "tree").mkdir()
    elif kind == "link":
        target.symlink_to("nowhere")
    else:
        target.write_text("old")
    for path in ("x", "tree"):
        with pytest.raises(UsageError, match="exists"):
            await room.files.download(path, target)
    assert leftovers(target) == ["target"]


async def test_a_folder_that_exists_is_gone_into(room: Room, target: Path) -> None:
    await room.files.write("out/x", b"x")
    target.mkdir()
    await room.files.download("out/x", target)
    await room.files.download("out", f"{target}/")
    assert sorted(os.listdir(target)) == ["out", "x"]


async def test_a_target_that_cannot_be_is_one_clear_error(room: Room, target: Path) -> None:
    await room.files.write("x", b"x")
    with pytest.raises(UsageError, match="is not a folder; make it first"):
        await room.files.download("x", f"{target}/")
    with pytest.raises(UsageError, match="cannot be made"):
        await room.files.download("x", target / "missing" / "x")
    with pytest.raises(UsageError, match="does not exist"):
        await room.files.download("y", target)
    assert leftovers(target) == []


async def test_a_link_is_not_followed_out_of_what_is_named(room: Room, target: Path) -> None:
    await room.files.write("private/x", b"x")
    (room.workspace / "out").symlink_to("private")
    with pytest.raises(UsageError):
        await room.files.download("out", target)
    with pytest.raises(UsageError):
        await room.files.download("out/x", target)


async def test_files_with_holes_cannot_fill_the_hosts_disk(room: Room, target: Path) -> None:
    room.policy = Policy(filesystem={"outputs": ["**"], "workspace": {"size": "1M"}})
    for name in ("a", "b"):
        (room.workspace / name).touch()
        os.truncate(room.workspace / name, 600_000)
    await room.files.download("a", target.parent / "a")
    with pytest.raises(DeniedError, match=r"more than the 1M that the workspace can hold"):
        await room.files.download("", target)
    assert leftovers(target) == ["a"]


async def test_a_download_that_is_cancelled_leaves_nothing(room: Room, target: Path) -> None:
    for number in range(50):
        await room.files.write(f"out/{number}", bytes(100_000))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(room.files.download, "out", target)
        while not leftovers(target):
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    assert leftovers(target) == []


async def test_odd_names_come_out_as_they_are(room: Room, target: Path) -> None:
    names = sorted(["two\nlines", os.fsdecode(b"\xff\xfe"), "x" * 255, "-rf", "\\", "C:", "a b"])
    for name in names:
        await room.files.write(f"out/{name}", b"x")
    await room.files.download("out", target)
    assert sorted(os.listdir(target)) == names


async def test_a_tree_of_two_thousand_levels_is_cut_and_removed_without_trouble(room: Room, target: Path) -> None:
    descriptor = os.open(room.workspace, os.O_RDONLY)
    for _ in range(2000):
        os.mkdir("deep" * 10, dir_fd=descriptor)
        below = os.open("deep" * 10, os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(os.open("bottom", os.O_CREAT | os.O_WRONLY, dir_fd=descriptor))
    os.close(descriptor)
    transfer = await room.files.download("", target)
    assert transfer.files == 0
    (skipped,) = transfer.skipped
    assert "100 folders deep" in skipped.reason
    path = "/".join(["deep" * 10] * 1500)
    assert len(await room.files.list(path)) == 1
    await room.files.remove("deep" * 10, recursive=True)
    assert os.listdir(room.workspace) == []


async def test_a_gibibyte_would_not_be_held_in_memory(room: Room, target: Path, tmp_path: Path) -> None:
    """A part of it here: the host's process must not grow by the size of the file."""
    (tmp_path / "big").touch()
    os.truncate(tmp_path / "big", SIZE)
    files: AsyncFiles = room.files
    await files.upload(tmp_path / "big", "warm")
    before = resident_bytes()
    await files.upload(tmp_path / "big", "big")
    await files.download("big", target)
    assert resident_bytes() - before < SIZE // 2


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
