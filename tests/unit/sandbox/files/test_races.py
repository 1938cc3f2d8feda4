"""A program that works against us while we work: nothing from outside ever comes in, and nothing of ours goes out.

The service has no isolation around it here: the files outside can be read by it, so that a single wrong step shows.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import sampling
from unit.sandbox.files.rooms import Room

from fumehood.errors import FumehoodError, UsageError
from fumehood.sandbox.files import FileKind

pytestmark = pytest.mark.anyio

ROUNDS = sampling.amount(300, whole=2000)
CANARY = b"canary of the outside"
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Looks the same as what is inside, with other content."""
    folder = tmp_path / "outside"
    (folder / "sub").mkdir(parents=True)
    (folder / "x").write_bytes(CANARY)
    (folder / "sub/x").write_bytes(CANARY)
    (folder / "canary").touch()
    return folder


@pytest.fixture
def inside(room: Room) -> Path:
    folder = room.workspace / "out"
    (folder / "sub").mkdir(parents=True)
    (folder / "x").write_bytes(b"inside")
    (folder / "sub/x").write_bytes(b"inside")
    return folder


def exchange(one: Path, other: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) != 0:
        raise OSError(ctypes.get_errno(), "renameat2")


@contextmanager
def racing(change: Callable[[], None]) -> Iterator[None]:
    """Does it again and again beside the block."""
    is_over = threading.Event()

    def race() -> None:
        while not is_over.is_set():
            with suppress(OSError):
                change()

    thread = threading.Thread(target=race)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def swapped_folder(workspace: Path, outside: Path) -> Callable[[], None]:
    """`out` is now the folder, now a link to the outside."""
    (workspace / "link").symlink_to(outside)
    return lambda: exchange(workspace / "out", workspace / "link")


def swapped_file(workspace: Path, outside: Path) -> Callable[[], None]:
    (workspace / "link").symlink_to(outside / "x")
    return lambda: exchange(workspace / "out/x", workspace / "link")


def swapped_parent(workspace: Path, outside: Path) -> Callable[[], None]:
    (workspace / "link").symlink_to(outside / "sub")
    return lambda: exchange(workspace / "out/sub", workspace / "link")


def moved_away(workspace: Path, outside: Path) -> Callable[[], None]:
    """The folder moves up and down, so that `..` in a link means another place each time."""
    (workspace / "deep/er").mkdir(parents=True)
    (workspace / "out/sub/up").symlink_to("../../../../outside")

    def move() -> None:
        os.rename(workspace / "out/sub", workspace / "deep/er/sub")
        os.rename(workspace / "deep/er/sub", workspace / "out/sub")

    return move


def pipes(workspace: Path, outside: Path) -> Callable[[], None]:
    """Opening one that nobody writes to would wait for ever."""
    os.mkfifo(workspace / "pipe")
    return lambda: exchange(workspace / "out/x", workspace / "pipe")


RACES = [swapped_folder, swapped_file, swapped_parent, moved_away, pipes]
Race = Callable[[Path, Path], Callable[[], None]]


@pytest.mark.parametrize("race", RACES)
async def test_reading_never_brings_in_the_outside(room: Room, inside: Path, outside: Path, race: Race) -> None:
    seen: set[bytes] = set()
    async with room.staying_files() as files:
        with racing(race(room.workspace, outside)):
            for _, path in zip(range(ROUNDS), itertools.cycle(["out/x", "out/sub/x", "out/sub/up/x"])):
                with suppress(UsageError):
                    seen.add(await files.read(path))
    assert seen <= {b"inside"}


@pytest.mark.parametrize("race", RACES)
async def test_listing_never_shows_the_outside(room: Room, inside: Path, outside: Path, race: Race) -> None:
    seen: set[str] = set()
    async with room.staying_files() as files:
        with racing(race(room.workspace, outside)):
            for _, path in zip(range(ROUNDS), itertools.cycle(["out", "out/sub", "out/sub/up"])):
                with suppress(UsageError):
                    seen |= {entry.name for entry in await files.list(path)}
    assert seen <= {"x", "sub", "up"}


@pytest.mark.parametrize("race", RACES)
async def test_downloads_never_bring_out_the_outside(
    room: Room, inside: Path, outside: Path, tmp_path: Path, race: Race
) -> None:
    target = tmp_path / "downloads"
    target.mkdir()
    async with room.staying_files() as files:
        with racing(race(room.workspace, outside)):
            for number in range(ROUNDS // 20):
                with suppress(UsageError):
                    await files.download("out", target / str(number))
    for path in target.rglob("*"):
        assert path.name != "canary"
        assert path.is_dir() or path.read_bytes() == b"inside"


@pytest.mark.parametrize("race", RACES)
async def test_writing_and_removing_never_touch_the_outside(
    room: Room, inside: Path, outside: Path, race: Race
) -> None:
    before = sorted((str(path), path.is_dir() or path.read_bytes()) for path in outside.rglob("*"))
    async with room.staying_files() as files:
        with racing(race(room.workspace, outside)):
            for number in range(ROUNDS // 10):
                for action in (
                    files.write("out/sub/new/x", b"ours"),
                    files.mkdir(f"out/sub/up/{number}"),
                    files.remove("out/sub/new", recursive=True),
                    files.remove("out/sub/x"),
                ):
                    with suppress(FumehoodError):
                        await action
    assert sorted((str(path), path.is_dir() or path.read_bytes()) for path in outside.rglob("*")) == before


async def test_a_tree_that_is_moved_while_it_is_removed_takes_nothing_else_along(room: Room, tmp_path: Path) -> None:
    """Up from a folder that was moved meanwhile is another folder, whose content was not to be removed."""
    kept = room.workspace / "kept"
    (kept / "b").mkdir(parents=True)
    (kept / "b/precious").write_text("x")

    def move() -> None:
        os.rename(room.workspace / "a/b/c", kept / "c")
        os.rename(kept / "c", room.workspace / "a/b/c")

    async with room.staying_files() as files:
        with racing(move):
            for _ in range(ROUNDS // 10):
                with suppress(OSError):
                    (room.workspace / "a/b/c/d").mkdir(parents=True, exist_ok=True)
                with suppress(FumehoodError):
                    await files.remove("a", recursive=True)
    assert (kept / "b/precious").read_text() == "x"


async def test_a_file_that_grows_while_it_is_read_has_an_end(room: Room) -> None:
    (room.workspace / "log").write_bytes(bytes(100_000))
    with open(room.workspace / "log", "ab", buffering=0) as stream, racing(lambda: grow(stream.fileno())):  # noqa: ASYNC230
        async with room.staying_files() as files:
            for _ in range(20):
                assert len(await files.read("log")) >= 100_000


def grow(descriptor: int) -> None:
    os.write(descriptor, bytes(10_000))
    if os.fstat(descriptor).st_size > 10_000_000:
        os.truncate(descriptor, 100_000)


async def test_a_file_that_shrinks_while_it_is_read_is_what_was_read(room: Room) -> None:
    path = room.workspace / "x"
    path.write_bytes(bytes(4_000_000))

    def shrink_and_grow() -> None:
        os.truncate(path, 10)
        os.truncate(path, 4_000_000)

    async with room.staying_files() as files:
        with racing(shrink_and_grow):
            for _ in range(50):
                assert not any(await files.read("x"))
        assert (await files.stat("x")).kind is FileKind.FILE
