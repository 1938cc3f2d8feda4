"""A fork of a workspace with many files, against `cp -a` of the same tree and `docker commit` of a container."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

from anyio import to_thread

from benchmarks import rivals
from fumehood.cli.bench.measurement import Row, in_turns
from fumehood.policy import Policy
from fumehood.sandbox.async_sandbox import AsyncSandbox

_MIB = 1024 * 1024
_FILES, _TOTAL_MIB = 2000, 200
_POLICY = {"filesystem": {"workspace": {"size": "1G"}}, "resources": {"memory": "2G", "timeout": "5m"}}
_ROUNDS = 3


async def measure() -> AsyncIterator[Row]:
    with tempfile.TemporaryDirectory(prefix="hood-bench-", dir="/var/tmp") as disk:
        os.environ["FUMEHOOD_SANDBOXES"] = str(Path(disk, "store"))
        tree, copy = Path(disk, "tree"), Path(disk, "copy")
        await to_thread.run_sync(_fill, tree)
        async with AsyncSandbox(Policy(**_POLICY)) as box:
            await box.files.upload(tree, "tree")
            async for row in _rows(box, Path(disk, "store"), tree, copy):
                yield row


async def _rows(box: AsyncSandbox, store: Path, tree: Path, copy: Path) -> AsyncIterator[Row]:
    async def fork() -> None:
        await box.fork(1)

    async def open_fork() -> None:
        async with (await box.fork(1))[0] as other:
            await other.run("pass")

    def copy_tree() -> None:
        shutil.rmtree(copy, ignore_errors=True)
        subprocess.run(["cp", "-a", tree, copy], check=True)
        os.sync()

    started = time.perf_counter()
    await fork()
    first = (time.perf_counter() - started) * 1000
    before = _bytes_in(store)
    what = f"{_TOTAL_MIB} MiB in {_FILES} files"
    forked, opened, copied = await in_turns(_ROUNDS, fork, open_fork, lambda: to_thread.run_sync(copy_tree))
    yield Row(f"the first fork of {what} / cp -a, synced", first, against=copied)
    yield Row("another fork / cp -a, synced", forked, against=copied)
    yield Row("another fork, opened and used / cp -a, synced", opened, against=copied)
    yield Row("bytes that the first fork took / cp -a", before / _MIB, "M", against=_bytes_in(copy) / _MIB)
    yield Row("bytes that another fork took / cp -a", (_bytes_in(store) - before) / _MIB, "M", _bytes_in(copy) / _MIB)
    container = await to_thread.run_sync(_container, tree)
    if container is None:
        yield Row("another fork / docker commit", missing="no Docker engine with an image answers")
        return
    try:
        forked, committed = await in_turns(_ROUNDS, fork, lambda: to_thread.run_sync(_commit, container))
        yield Row("another fork / docker commit", forked, against=committed)
        yield Row("the first fork / docker commit", first, against=committed)
    finally:
        await to_thread.run_sync(_remove, container)


def _fill(tree: Path) -> None:
    """Contents that do not repeat."""
    for number in range(_FILES):
        folder = tree / f"d{number % 50}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"f{number}").write_bytes(os.urandom(_TOTAL_MIB * _MIB // _FILES))


def _bytes_in(folder: Path) -> int:
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


def _container(tree: Path) -> str | None:
    image = rivals.docker_image()
    if image is None:
        return None
    container = subprocess.run(
        ["docker", "create", image, "true"], capture_output=True, text=True, check=True
    ).stdout.strip()
    subprocess.run(["docker", "cp", "-q", tree, f"{container}:/tree"], capture_output=True, check=True)
    return container


def _commit(container: str) -> None:
    done = subprocess.run(["docker", "commit", container], capture_output=True, text=True, check=True)
    subprocess.run(["docker", "rmi", done.stdout.strip()], capture_output=True, check=False)


def _remove(container: str) -> None:
    subprocess.run(["docker", "rm", "-f", container], capture_output=True, check=False)
