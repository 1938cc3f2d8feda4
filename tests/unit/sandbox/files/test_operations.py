"""Write, read, list, stat, remove, mkdir: what they do, and what they say when they cannot."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from unit.sandbox.files.rooms import Room

from fumehood.errors import DeniedError, FumehoodError, UsageError
from fumehood.policy import Policy
from fumehood.sandbox.audit import SandboxAudit
from fumehood.sandbox.files import AsyncFiles, FileKind

pytestmark = pytest.mark.anyio

NAMES = {
    "plain": "data.csv",
    "spaces": " a b ",
    "a newline": "two\nlines",
    "invalid UTF-8": os.fsdecode(b"\xff\xfe name"),
    "a leading dash": "-rf",
    "as long as can be": "x" * 255,
    "terminal sequences": "\x1b[31mred",
    "hidden": "...",
    "not ASCII": "naïve-é-漢字",
    "quotes": """'"`$(id)""",
}


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES.keys())
async def test_a_file_with_any_name_goes_in_and_comes_out(room: Room, name: str) -> None:
    await room.files.write(f"out/{name}", b"content")
    assert await room.files.read(f"out/{name}") == b"content"
    assert [entry.name for entry in await room.files.list("out")] == [name]
    assert (await room.files.stat(f"out/{name}")).size == 7
    await room.files.remove(f"out/{name}")
    assert os.listdir(room.workspace / "out") == []


@pytest.mark.parametrize("size", [0, 1, 2**20 - 1, 2**20, 2**20 + 1, 5 * 2**20 + 17])
async def test_a_file_of_any_size_arrives_whole(room: Room, size: int) -> None:
    data = os.urandom(size)
    await room.files.write("x", data)
    assert (room.workspace / "x").read_bytes() == data
    assert await room.files.read("x") == data


async def test_text_is_written_as_utf8(room: Room) -> None:
    await room.files.write("x", "grün")
    assert (room.workspace / "x").read_bytes() == "grün".encode()


@pytest.mark.parametrize(("executable", "mode"), [(False, 0o644), (True, 0o755)])
async def test_a_file_gets_a_plain_mode(room: Room, executable: bool, mode: int) -> None:
    await room.files.write("x", b"", executable=executable)
    assert (await room.files.stat("x")).mode == mode


async def test_writing_replaces_a_file_and_a_link_but_not_what_the_link_leads_to(room: Room) -> None:
    (room.workspace / "kept").write_text("kept")
    (room.workspace / "x").symlink_to("kept")
    for text in ("one", "two"):
        await room.files.write("x", text)
        assert (room.workspace / "x").read_text() == text
    assert (room.workspace / "kept").read_text() == "kept"
    assert sorted(os.listdir(room.workspace)) == ["kept", "x"]


async def test_the_workspace_has_a_relative_and_an_absolute_spelling(room: Room) -> None:
    await room.files.write("/workspace/a/../b", b"x")
    assert await room.files.read("./b") == await room.files.read("//workspace//b") == b"x"


async def test_a_place_elsewhere_in_the_sandbox_has_an_absolute_path(room: Room) -> None:
    (room.root / "data").mkdir()
    await room.files.write("/data/x", b"x")
    assert (room.root / "data" / "x").read_bytes() == b"x"
    assert [entry.name for entry in await room.files.list("/")] == ["data", "workspace"]
    assert (await room.files.stat("/")).name == "/"


async def test_a_list_says_what_everything_is(room: Room) -> None:
    (room.workspace / "file").write_text("12345")
    (room.workspace / "folder").mkdir()
    (room.workspace / "link").symlink_to("no where\n")
    os.mkfifo(room.workspace / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        descriptor = os.open(room.workspace, os.O_RDONLY)
        listener.bind(f"/proc/self/fd/{descriptor}/socket")
        os.close(descriptor)
        entries = await room.files.list()
    assert {entry.name: entry.kind for entry in entries} == {
        "file": FileKind.FILE,
        "folder": FileKind.FOLDER,
        "link": FileKind.LINK,
        "pipe": FileKind.PIPE,
        "socket": FileKind.SOCKET,
    }
    assert [entry.target for entry in entries if entry.kind is FileKind.LINK] == ["no where\n"]
    assert entries[0].modified == pytest.approx((room.workspace / "file").stat().st_mtime)


async def test_ten_thousand_entries_are_listed_by_name(room: Room) -> None:
    for number in range(10_000):
        (room.workspace / f"{number:05}").touch()
    assert [entry.name for entry in await room.files.list()] == [f"{number:05}" for number in range(10_000)]


async def test_a_folder_is_made_with_those_above_it(room: Room) -> None:
    await room.files.mkdir("a/b/c")
    await room.files.mkdir("a/b/c")
    await room.files.mkdir("")
    assert (room.workspace / "a/b/c").is_dir()
    with pytest.raises(UsageError, match="exists already"):
        await room.files.mkdir("a", parents=False)
    with pytest.raises(UsageError, match="does not exist"):
        await room.files.mkdir("x/y", parents=False)


async def test_a_tree_is_removed_only_when_asked(room: Room) -> None:
    await room.files.write("a/b/c", b"")
    with pytest.raises(UsageError, match="recursive=True"):
        await room.files.remove("a")
    await room.files.remove("a", recursive=True)
    assert os.listdir(room.workspace) == []


async def test_removing_a_tree_leaves_alone_what_its_links_lead_to(room: Room, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "kept").touch()
    (room.workspace / "a" / "b").mkdir(parents=True)
    (room.workspace / "a" / "b" / "link").symlink_to(tmp_path / "outside")
    (room.workspace / "a" / "up").symlink_to("..")
    await room.files.remove("a", recursive=True)
    assert (tmp_path / "outside" / "kept").exists()


async def test_links_inside_of_the_workspace_are_followed(room: Room) -> None:
    await room.files.write("real/x", b"content")
    (room.workspace / "relative").symlink_to("real/./../real")
    (room.workspace / "absolute").symlink_to("/workspace/real")
    (room.workspace / "file").symlink_to("relative/x")
    for path in ("relative/x", "absolute/x", "file"):
        assert await room.files.read(path) == b"content"
    await room.files.write("absolute/new/y", b"")
    assert (room.workspace / "real/new/y").exists()


async def test_an_empty_file_system_path_is_the_workspace(room: Room) -> None:
    assert (await room.files.stat("")).kind is FileKind.FOLDER
    assert await room.files.list(".") == []


BAD_READS = {
    "missing": ("missing", UsageError, "does not exist"),
    "a folder": ("folder", UsageError, "is a folder; list it, or download"),
    "below a file": ("file/x", UsageError, "is not a folder"),
    "a pipe": ("pipe", UsageError, "is a pipe; one can only read files"),
    "a circle of links": ("circle", UsageError, "circle"),
    "a link to itself": ("itself/x", UsageError, "circle"),
    "a link that dangles": ("dangling", UsageError, "does not exist"),
    "a link out": ("out", UsageError, "leads out of the workspace by a link"),
    "a link up": ("up/root", UsageError, "leads out of the workspace by a link"),
    "a longer name than there is": ("x" * 256, UsageError, "more than 255 bytes"),
    "up": ("../x", UsageError, "leads out of the workspace"),
    "up in the middle": ("a/../../x", UsageError, "leads out of the workspace"),
    "NUL": ("a\0b", UsageError, "NUL"),
    "half a character": ("\ud800", UsageError, "cannot be encoded"),
    "too long": ("a/" * 40_000, UsageError, "bytes, more than"),
    "elsewhere": ("/etc/passwd", DeniedError, "not in the workspace"),
    "the service's own scratch": ("/tmp/x", UsageError, "made anew for each run"),
    "the service itself": ("/proc/self/environ", UsageError, "made anew for each run"),
}


@pytest.mark.parametrize(("path", "kind", "words"), BAD_READS.values(), ids=BAD_READS.keys())
async def test_what_cannot_be_read_is_one_clear_error(
    room: Room, path: str, kind: type[FumehoodError], words: str
) -> None:
    (room.workspace / "folder").mkdir()
    (room.workspace / "file").touch()
    os.mkfifo(room.workspace / "pipe")
    for name, target in {"circle": "elcric", "elcric": "circle", "itself": "itself", "dangling": "missing"}.items():
        (room.workspace / name).symlink_to(target)
    (room.workspace / "out").symlink_to("/etc/hostname")
    (room.workspace / "up").symlink_to("folder/../..")
    with pytest.raises(kind) as caught:
        await room.files.read(path)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_only_what_outputs_name_can_be_read(room: Room) -> None:
    (room.workspace / "secret").touch()
    room.policy = Policy(filesystem={"outputs": ["out/*.csv"]})
    with pytest.raises(DeniedError, match=r"filesystem\.outputs: \['secret'\]"):
        await room.files.read("secret")
    with pytest.raises(DeniedError):
        await room.files.read("out/../secret")
    with pytest.raises(UsageError, match="does not exist"):
        await room.files.read("out/x.csv")


async def test_a_file_that_is_too_large_to_read_at_once_is_refused(room: Room) -> None:
    (room.workspace / "x").write_bytes(bytes(2048))
    with pytest.raises(UsageError, match="has 2K, too much to read at once; download it"):
        await room.files.read("x", max_bytes=2047)
    assert len(await room.files.read("x", max_bytes=2048)) == 2048


async def test_a_sparse_file_of_a_terabyte_is_refused_at_once(room: Room) -> None:
    (room.workspace / "x").touch()
    os.truncate(room.workspace / "x", 2**40)
    with pytest.raises(UsageError, match="has 1T"):
        await room.files.read("x")


@pytest.mark.parametrize("path", ["folder", "", ".", "/workspace"])
async def test_a_folder_cannot_be_written_to_as_a_file(room: Room, path: str) -> None:
    (room.workspace / "folder").mkdir()
    with pytest.raises(UsageError):
        await room.files.write(path, b"x" * 3_000_000)
    with pytest.raises(UsageError):
        await room.files.write("folder/../folder", b"")


@pytest.mark.parametrize("path", ["", "/", "/workspace"])
async def test_the_workspace_itself_cannot_be_removed(room: Room, path: str) -> None:
    with pytest.raises(UsageError, match="always exists"):
        await room.files.remove(path, recursive=True)


async def test_errors_leave_the_conversation_usable(room: Room) -> None:
    async with room.staying_files() as files:
        (room.workspace / "folder").mkdir()
        for _ in range(3):
            with pytest.raises(UsageError):
                await files.write("folder", bytes(10_000_000))
            with pytest.raises(UsageError):
                await files.read("missing")
            await files.write("x", b"1")
            assert await files.read("x") == b"1"


async def test_a_file_gets_another_name_in_folders_that_are_made(room: Room) -> None:
    await room.files.write("a/x", b"content")
    await room.files.write("b/old", b"old")
    await room.files.rename("a/x", "b/new/y")
    await room.files.rename("b/new/y", "b/old")
    assert (room.workspace / "b" / "old").read_bytes() == b"content"
    assert os.listdir(room.workspace / "a") == []
    entry = await room.files.stat("b/old")
    assert (entry.uid, entry.gid) == (os.getuid(), os.getgid())


async def test_a_link_is_renamed_itself_and_leads_no_rename_outside(room: Room, tmp_path: Path) -> None:
    (room.workspace / "link").symlink_to("target")
    await room.files.rename("link", "other")
    assert os.readlink(room.workspace / "other") == "target"
    (room.workspace / "out").symlink_to(tmp_path)
    await room.files.write("mine", b"")
    for old, new in (("mine", "out/stolen"), ("out/anything", "taken"), ("mine", "../mine")):
        with pytest.raises(UsageError):
            await room.files.rename(old, new)
    assert (room.workspace / "mine").exists()


async def test_a_rename_that_cannot_be_says_why(room: Room) -> None:
    await room.files.write("full/x", b"")
    await room.files.mkdir("folder")
    for old, new, reason in (
        ("nowhere", "x", "does not exist"),
        ("folder", "full", "not empty"),
        ("", "x", "always exists"),
        ("full/x", "folder", "is a folder"),
    ):
        with pytest.raises(UsageError, match=reason):
            await room.files.rename(old, new)


async def test_a_file_that_the_caller_renamed_is_no_artifact(room: Room) -> None:
    artifacts = room.artifacts
    files = AsyncFiles(room.policy, room.converse, SandboxAudit(False), artifacts)
    await files.write("x", b"content")
    await files.rename("x", "y")
    assert (await artifacts.collect()).artifacts == ()
