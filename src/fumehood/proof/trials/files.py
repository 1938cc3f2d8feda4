"""Trials of the sandbox's own files, and of installed packages."""

from __future__ import annotations

from collections.abc import Awaitable
from pathlib import Path

from fumehood.errors import DeniedError, UsageError
from fumehood.proof.laboratory import Laboratory, remove
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
        remove(Path(folder, lab.mark))
    return require_refusals(tried, _SYSTEM_FOLDERS)


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
    change_packages,
    find_packages,
)
