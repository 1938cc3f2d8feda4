"""What a run has made: found, described, and bounded."""

from __future__ import annotations

import hashlib
import os

import anyio
import pytest
import sampling
from unit.sandbox.files.rooms import Room

from fumehood.policy import Policy
from fumehood.sandbox.files.artifacts import media_type

pytestmark = pytest.mark.anyio


async def test_an_artifact_has_path_size_digest_and_type(room: Room) -> None:
    await room.files.write("out/a.csv", b"1,2\n")
    await room.files.write("out/deep/b.unheard-of", b"")
    collection = await room.artifacts.collect()
    first, second = collection.artifacts
    assert (first.path, first.size, first.media_type) == ("out/a.csv", 4, "text/csv")
    assert first.sha256 == hashlib.sha256(b"1,2\n").hexdigest()
    assert (second.path, second.media_type) == ("out/deep/b.unheard-of", "application/octet-stream")
    assert collection.problem is None


async def test_only_what_changed_is_told_again(room: Room) -> None:
    tracker = room.artifacts
    for name in ("same", "changed", "gone"):
        await room.files.write(name, b"1")
    assert len((await tracker.collect()).artifacts) == 3
    assert (await tracker.collect()).artifacts == ()
    with open(room.workspace / "changed", "r+b") as stream:  # noqa: ASYNC230
        stream.write(b"2")
    (room.workspace / "gone").unlink()
    await room.files.write("new", b"")
    assert [artifact.path for artifact in (await tracker.collect()).artifacts] == ["changed", "new"]
    await anyio.Path(room.workspace / "gone").write_bytes(b"1")
    assert [artifact.path for artifact in (await tracker.collect()).artifacts] == ["gone"]


async def test_only_files_that_outputs_name_are_artifacts(room: Room) -> None:
    room.policy = Policy(filesystem={"outputs": ["out/**"]})
    for path in ("private", "out/x", "out/.git/config"):
        await room.files.write(path, b"")
    (room.workspace / "out/link").symlink_to("../private")
    (room.workspace / "elsewhere").mkdir()
    (room.workspace / "out/folder").symlink_to("../elsewhere")
    os.mkfifo(room.workspace / "out/pipe")
    assert [artifact.path for artifact in (await room.artifacts.collect()).artifacts] == ["out/x"]


async def test_without_outputs_nobody_is_asked(room: Room) -> None:
    room.policy = Policy()
    await room.files.write("x", b"")
    assert (await room.artifacts.collect()).artifacts == ()


async def test_an_output_folder_that_is_a_link_holds_no_artifacts(room: Room) -> None:
    await room.files.write("private/x", b"")
    (room.workspace / "out").symlink_to("private")
    room.policy = Policy(filesystem={"outputs": ["out/**"]})
    assert (await room.artifacts.collect()).artifacts == ()


async def test_too_many_are_a_clear_problem_once(room: Room) -> None:
    room.policy = Policy(filesystem={"outputs": ["**"]}, resources={"artifacts": 10})
    for number in range(11):
        await room.files.write(f"{number}", b"")
    tracker = room.artifacts
    collection = await tracker.collect()
    assert collection.artifacts == ()
    assert collection.problem == "it made 11 output files, more than 10; raise resources.artifacts"
    await room.files.write("one more", b"")
    assert [artifact.path for artifact in (await tracker.collect()).artifacts] == ["one more"]


async def test_very_many_files_are_a_clear_problem_and_no_hang(room: Room) -> None:
    many = sampling.amount(20_000, whole=100_000)
    folder = os.open(room.workspace, os.O_RDONLY)
    for number in range(many):
        os.mknod(f"{number}", 0o600, dir_fd=folder)
    os.close(folder)
    assert f"{many} output files, more than 1000" in str((await room.artifacts.collect()).problem)


async def test_too_large_is_a_clear_problem_before_anything_is_read(room: Room) -> None:
    (room.workspace / "x").touch()
    os.truncate(room.workspace / "x", 2**40)
    assert (await room.artifacts.collect()).problem == (
        "its output files have 1T, more than 256M; raise resources.artifacts_size"
    )


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a.png", "image/png"),
        ("a.tar.gz", "application/gzip"),
        ("a", "application/octet-stream"),
        ("data:text/html,x", "application/octet-stream"),
        ("http://x/a.html", "text/html"),
        ("two\nlines.json", "application/json"),
        (os.fsdecode(b"\xff.txt"), "text/plain"),
        (".html", "application/octet-stream"),
    ],
)
def test_a_type_follows_from_the_name(path: str, expected: str) -> None:
    assert media_type(path) == expected
