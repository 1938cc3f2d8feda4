"""Trials of mounts. Where a policy has none and its backend takes some, those of a folder of the trial's own."""

from __future__ import annotations

import os
import socket
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fumehood.errors import UnenforceableError
from fumehood.policy import Mount
from fumehood.proof.laboratory import Laboratory, attempts, remove
from fumehood.proof.program import GOT, require_refusals, require_success
from fumehood.proof.trial import BrokenError, Trial, attack, use
from fumehood.sandbox.async_sandbox import AsyncSandbox


@asynccontextmanager
async def _mounted(lab: Laboratory) -> AsyncIterator[tuple[AsyncSandbox, tuple[Mount, ...]]]:
    """A trial that goes through the mounts of a policy without any would have tried nothing."""
    if lab.policy.filesystem.mounts:
        yield lab.box, lab.policy.filesystem.mounts
        return
    folder = lab.folder / "mounted"
    folder.mkdir(exist_ok=True)
    (folder / "file").write_text("of the host")
    for path in (folder, folder / "file"):
        path.chmod(0o777)  # nothing but the way of mounting keeps anyone from writing
    mounts = [
        {"source": str(folder), "target": "/mounted/folder"},
        {"source": str(folder / "file"), "target": "/mounted/file"},
    ]
    async with lab.sandbox({"filesystem": {"mounts": mounts}}) as box:
        yield box, box.policy.filesystem.mounts


@attack("filesystem.mounts", "Write into mounts that are read-only, and make a device in every mount.")
async def change_mounts(lab: Laboratory) -> str:
    code = """
    def change(target):
        if os.path.isdir(target):
            return write(os.path.join(target, mark))
        os.close(os.open(target, os.O_WRONLY | os.O_APPEND))

    for target in read_only:
        attempt("write to " + target, lambda: change(target))
    for target in targets:
        device = stat.S_IFCHR | 0o600
        attempt("device in " + target, lambda: os.mknod(os.path.join(target, mark), device, os.makedev(1, 3)))
    """
    async with _mounted(lab) as (box, mounts):
        targets = [mount.target for mount in mounts]
        read_only = [mount.target for mount in mounts if mount.mode == "ro"]
        tried = await attempts(box, code, read_only=read_only, targets=targets, mark=lab.mark)
        for mount in mounts:
            remove(Path(mount.source, lab.mark))
    names = [*(f"write to {target}" for target in read_only), *(f"device in {target}" for target in targets)]
    return require_refusals(tried, names)


@attack("filesystem.mounts", "See the neighbours of a file that is mounted alone, and leave files of another owner.")
async def see_neighbours(lab: Laboratory) -> str:
    folder = lab.folder / "shared"
    (folder / "all").mkdir(parents=True, exist_ok=True)
    for path in (folder / "one", folder / "neighbour", folder / "all" / "file"):
        path.write_text("of the host")
    owner = _make_anyones(folder)
    mounts = [
        {"source": str(folder / "one"), "target": "/one/file"},
        {"source": str(folder / "all"), "target": "/all", "mode": "rw"},
    ]
    code = """
    attempt("neighbours", lambda: os.listdir("/one"))
    attempt("written", lambda: write("/all/" + mark))
    """
    async with lab.sandbox({"filesystem": {"mounts": mounts}}) as box:
        tried = await attempts(box, code, mark=lab.mark)
    if tried.get("neighbours") != "got: ['file']":
        raise BrokenError(f"beside a file that is mounted alone: {tried}")
    made = folder / "all" / lab.mark
    if not made.exists() or made.stat().st_uid != owner:
        raise BrokenError(f"what was written does not belong to the owner of the folder, {owner}: {tried}")
    return "no neighbours; what was written belongs to the owner of the folder"


def _make_anyones(folder: Path) -> int:
    """Another user's where we may say so, and open to all: only the way of mounting decides whose new files are."""
    owner = _STRANGER if os.geteuid() == 0 else os.geteuid()
    for path in (folder, *folder.rglob("*")):
        if os.geteuid() == 0:
            os.chown(path, owner, owner)
        path.chmod(0o777)
    return owner


_STRANGER = 54_321  # who has nothing on this host


@attack("filesystem.mounts", "Reach a service of the host by its socket in a mounted folder.")
async def mount_a_socket(lab: Laboratory) -> str:
    folder = lab.folder / "services"
    folder.mkdir()
    mounts = [{"source": str(folder), "target": "/services"}]
    code = """
    with socket.socket(socket.AF_UNIX) as client:
        attempt("connect", lambda: client.connect("/services/service.sock"))
    """
    with socket.socket(socket.AF_UNIX) as service, warnings.catch_warnings(action="ignore"):  # of the danger
        service.bind(str(folder / "service.sock"))
        (folder / "service.sock").chmod(0o777)
        service.listen()
        try:
            async with lab.sandbox({"filesystem": {"mounts": mounts}}) as box:
                tried = await attempts(box, code)
        except UnenforceableError as error:
            return str(error)[:200]
    if tried["connect"].startswith(GOT):
        raise BrokenError("the sandbox opened, and its program is connected to a service of the host")
    return f"the sandbox opened, and its kernel connects to no socket of the host: {tried['connect']}"


@use("filesystem.mounts", "Look at every mount.")
async def read_mounts(lab: Laboratory) -> str:
    code = 'for target in targets:\n    attempt(target, lambda: "is there" if os.stat(target) else "")'
    async with _mounted(lab) as (box, mounts):
        targets = [mount.target for mount in mounts]
        return require_success(await attempts(box, code, targets=targets), targets)


TRIALS: tuple[Trial, ...] = (change_mounts, see_neighbours, mount_a_socket, read_mounts)
