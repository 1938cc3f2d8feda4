"""Disks with packages: the folder of an environment as a read-only file system, made once and kept by its digest."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from contextlib import closing
from pathlib import Path

from fumehood.backends.interface import PackageFolder
from fumehood.backends.microvm.image import make_folder
from fumehood.errors import StepFailedError, UsageError
from fumehood.host.locks import lock_exclusive

_UUID = "00000000-0000-0000-0000-000000000000"
_MOST_KEPT = 16


def packages_disk(packages: PackageFolder) -> Path:
    """Blocks while it is written."""
    folder = make_folder("packages")
    disk = folder / f"{packages.digest.replace(':', '-')}.erofs"
    with closing(lock_exclusive(folder / "lock")):
        if not disk.exists():
            descriptor, name = tempfile.mkstemp(prefix=".draft-", dir=folder)
            os.close(descriptor)
            draft = Path(name)
            try:
                write_erofs(Path(packages.path), draft)
                draft.rename(disk)
            finally:
                draft.unlink(missing_ok=True)
        os.utime(disk)
        _trim(folder)
    return disk


def write_erofs(tree: Path, disk: Path, made_at: int = 0) -> None:
    """Not compressed: a machine whose processor is software would take its time to undo it. All in it is root's."""
    program = shutil.which("mkfs.erofs")
    if program is None:
        raise UsageError("a disk for machines is made with mkfs.erofs: `sudo apt-get install erofs-utils`")
    words = [program, "--quiet", "--all-root", "-T", str(made_at), "-U", _UUID, str(disk), str(tree)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise StepFailedError("writing a disk for machines", (done.stderr or done.stdout).strip()[-500:])


def _trim(folder: Path) -> None:
    disks = sorted(folder.glob("*.erofs"), key=lambda disk: disk.stat().st_mtime)
    for disk in disks[:-_MOST_KEPT]:
        disk.unlink(missing_ok=True)
