"""Trials of the sandbox's own files, of mounts, and of installed packages."""

from __future__ import annotations

import os
import socket
import warnings
from collections.abc import Awaitable
from pathlib import Path

from fumehood.errors import DeniedError, UnenforceableError, UsageError
from fumehood.proof.laboratory import Laboratory, attempts
from fumehood.proof.program import require_refusals, require_success
from fumehood.proof.trial import BrokenError, NotTestedError, Trial, attack, use

# Places of the system: a file made there would be the host's, or every later run's.
_SYSTEM_FOLDERS = ("/", "/usr", "/usr/bin", "/etc", "/lib", "/dev", "/proc")


@attack("filesystem", "Read a file of the host by its path, through /proc, and by walking up from the working folder.")
async def read_files_of_the_host(lab: Laboratory) -> str:
    with lab.host_file() as path:
        tried = await lab.attempts(
            """
            places = {
                "by its path": path,
                "by the root of process 1": "/proc/1/root" + path,
                "by the own root": "/proc/self/root" + path,
                "by walking up": "../" * 32 + path,
                "devices of memory": "/dev/mem",
                "messages of the kernel": "/dev/kmsg",
            }
            for name, place in places.items():
                attempt(name, lambda: read(place))
            """,
            path=str(path),
        )
    return require_refusals(tried, ["by its path", "by the root of process 1", "by walking up", "devices of memory"])


@attack("filesystem", "Make files in folders of the system.")
async def write_to_the_system(lab: Laboratory) -> str:
    code = """
    for folder in folders:
        attempt(folder, lambda: write(os.path.join(folder, mark)))
    """
    tried = await lab.attempts(code, folders=_SYSTEM_FOLDERS, mark=lab.mark)
    for folder in _SYSTEM_FOLDERS:
        _remove(Path(folder, lab.mark))
    return require_refusals(tried, _SYSTEM_FOLDERS)


def _remove(path: Path) -> None:
    """Where the attack got through to the host, its file does not stay."""
    try:
        path.unlink()
    except OSError:
        return


@attack("filesystem", "Have the caller write, make folders and remove through links that lead out of the workspace.")
async def lead_the_caller_out(lab: Laboratory) -> str:
    links = {"tmp": "/tmp", "up": "../../../../tmp", "system": "/usr"}
    async with lab.sandbox() as box:
        await box.run(f"import os\nfor name, target in {links!r}.items(): os.symlink(target, name)")
        for name, target in links.items():
            await _require_refusal(box.files.write(f"{name}/{lab.mark}", "x"), target)
            await _require_refusal(box.files.mkdir(f"{name}/{lab.mark}"), target)
    return f"refused through each of: {', '.join(links.values())}"


async def _require_refusal(change: Awaitable[object], target: str) -> None:
    try:
        await change
    except (UsageError, DeniedError):
        return
    raise BrokenError(f"a change of the caller's went through the link to {target}")


@use(
    "filesystem",
    "Write to the workspace and to /tmp, read it again, and read what the caller has written.",
)
async def work_with_files(lab: Laboratory) -> str:
    await lab.box.files.write(lab.mark, "from the caller")
    code = """
    attempt("the caller's file", lambda: read(mark))
    attempt("a file in /tmp", lambda: (write("/tmp/" + mark), read("/tmp/" + mark)))
    attempt("a file in the workspace", lambda: (write(mark + ".new"), read(mark + ".new")))
    os.remove(mark), os.remove(mark + ".new")
    """
    names = ["the caller's file", "a file in /tmp", "a file in the workspace"]
    return require_success(await lab.attempts(code, mark=lab.mark), names)


@attack("filesystem.mounts", "Write into mounts that are read-only, and make a device in every mount.")
async def change_mounts(lab: Laboratory) -> str:
    mounts = lab.policy.filesystem.mounts
    read_only = [mount.target for mount in mounts if mount.mode == "ro"]
    code = """
    for target in read_only:
        attempt("file in " + target, lambda: write(os.path.join(target, mark) if os.path.isdir(target) else target))
        attempt("append to " + target, lambda: os.close(os.open(target, os.O_WRONLY | os.O_APPEND)))
    for target in targets:
        device = stat.S_IFCHR | 0o600
        attempt("device in " + target, lambda: os.mknod(os.path.join(target, mark), device, os.makedev(1, 3)))
    """
    targets = [mount.target for mount in mounts]
    tried = await lab.attempts(code, read_only=read_only, targets=targets, mark=lab.mark)
    for mount in mounts:
        _remove(Path(mount.source, lab.mark))
    # Opening a folder for writing is refused as a folder; a file is refused as read-only.
    return require_refusals(tried, [f"device in {target}" for target in targets])


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


@attack("filesystem.mounts", "Mount a folder that has a socket of a service of the host in it.")
async def mount_a_socket(lab: Laboratory) -> str:
    folder = lab.folder / "services"
    folder.mkdir()
    mounts = [{"source": str(folder), "target": "/services"}]
    with socket.socket(socket.AF_UNIX) as service, warnings.catch_warnings(action="ignore"):  # of the danger
        service.bind(str(folder / "service.sock"))
        service.listen()
        try:
            async with lab.sandbox({"filesystem": {"mounts": mounts}}):
                raise BrokenError("the sandbox opened, with the socket of a service in its mount")
        except UnenforceableError as error:
            return str(error)[:200]


@use("filesystem.mounts", "Look at every mount.")
async def read_mounts(lab: Laboratory) -> str:
    targets = [mount.target for mount in lab.policy.filesystem.mounts]
    code = 'for target in targets:\n    attempt(target, lambda: "is there" if os.stat(target) else "")'
    return require_success(await lab.attempts(code, targets=targets), targets)


@attack("environment.packages", "Change the installed packages.")
async def change_packages(lab: Laboratory) -> str:
    tried = await lab.attempts(
        """
        import importlib.metadata
        folders = {str(one.locate_file("")) for one in importlib.metadata.distributions()}
        folders = {folder for folder in folders if os.path.isdir(folder)}
        for folder in folders:
            attempt(folder, lambda: write(os.path.join(folder, mark)))
        """,
        mark=lab.mark,
    )
    if not tried:
        raise BrokenError("the program finds no folder with packages")
    return require_refusals(tried, tried)


@use("environment.packages", "Find the packages that the policy names.")
async def find_packages(lab: Laboratory) -> str:
    from packaging.requirements import Requirement

    names = [Requirement(text).name for text in lab.policy.environment.packages]
    if not names:
        raise NotTestedError("the policy names its packages in a requirements file, which the trial does not read")
    code = "import importlib.metadata\nfor name in names:\n    attempt(name, lambda: importlib.metadata.version(name))"
    return require_success(await lab.attempts(code, names=names), names)


TRIALS: tuple[Trial, ...] = (
    read_files_of_the_host,
    write_to_the_system,
    lead_the_caller_out,
    work_with_files,
    change_mounts,
    see_neighbours,
    mount_a_socket,
    read_mounts,
    change_packages,
    find_packages,
)
