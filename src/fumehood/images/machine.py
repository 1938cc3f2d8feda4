"""Images for machines: the same root file system as for containers, as a read-only disk, with a kernel beside it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tarfile
from contextlib import closing
from pathlib import Path

from fumehood.backends.microvm import image as machine_image
from fumehood.backends.microvm.disks import write_erofs
from fumehood.backends.microvm.image import (
    FACTS,
    FIRST_FILES,
    KERNEL,
    ROOT,
    MachineImage,
    image_folder,
    make_folder,
    read_image,
)
from fumehood.environments import EnvironmentSpec, InstallRunner
from fumehood.errors import UsageError
from fumehood.guest.contract.paths import GUEST_FOLDER
from fumehood.host.folders import remove_folder
from fumehood.host.interpreter import PACKAGES_PLACE
from fumehood.host.locks import lock_exclusive
from fumehood.images import cpio
from fumehood.images.build import Heartbeat, Progress, carry_on, ignore, make_layer
from fumehood.images.build_dir import BuildDir, open_build_dir
from fumehood.images.kernel import KernelFiles, fetch_kernel
from fumehood.images.recipe import Recipe

# Where a guest finds file systems of its own; the root itself cannot be written.
_PLACES = (GUEST_FOLDER.lstrip("/"), PACKAGES_PLACE.lstrip("/"), "var/tmp")
# What an engine would put there.
_FILES = {
    "etc/hosts": b"127.0.0.1 localhost sandbox\n::1 localhost\n",
    "etc/hostname": b"sandbox\n",
    "etc/resolv.conf": b"nameserver 127.0.0.1\n",
}
# The rest of the guest comes over the stream: first its length, then what reads what follows.
_FIRST_LINES = (
    "import os\n"
    "def take(size):\n"
    "    data = b''\n"
    "    while len(data) < size: data += os.read(0, size - len(data))\n"
    "    return data\n"
    "exec(take(int.from_bytes(take(8), 'big')).decode())\n"
)
_FIRST_STEPS = """#!/bin/busybox sh
b=/bin/busybox
$b mount -t devtmpfs dev /dev
for name in {modules}; do $b insmod /modules/$name.ko; done
while [ ! -e /dev/vport0p1 ] || [ ! -e /dev/vport0p2 ] || [ ! -e /dev/vda ]; do $b usleep 10000; done
$b mount -t erofs -o ro /dev/vda /root
$b mount --move /dev /root/dev
exec 0<>/root/dev/vport0p1 1>&0 2<>/root/dev/vport0p2
exec $b switch_root /root {python} -I -S -u -c "{lines}"
"""


def build_machine_image(
    recipe: Recipe, runner: InstallRunner, progress: Progress = ignore, heartbeat: Heartbeat = carry_on
) -> MachineImage:
    """Blocks, for command lines. Whatever `heartbeat` raises ends it, and nothing is left."""
    if recipe.base is not None:
        raise UsageError("an image for machines is made from Debian packages: leave --base away")
    folder = image_folder(recipe.name, os.environ)
    with open_build_dir() as build_dir:
        kernel = fetch_kernel(build_dir, progress, heartbeat)
        layer = build_dir.folder / "layer.tar"
        machine = os.uname().machine
        made = make_layer(recipe, machine, build_dir, layer, runner, progress, heartbeat, folders=_PLACES, files=_FILES)
        progress("writing the disk")
        draft = build_dir.folder / "image"
        draft.mkdir()
        _write_disk(layer, draft / ROOT, build_dir, made.made_at)
        (draft / KERNEL).write_bytes(kernel.kernel)
        (draft / FIRST_FILES).write_bytes(first_files(kernel, made.python_path))
        facts = {
            "format": machine_image.FORMAT,
            "digest": _digest(draft),
            "release": kernel.release,
            "user": list(made.user),
            "python": list(made.python),
            "environment": EnvironmentSpec.of(recipe.policy.environment).request if made.has_packages else None,
            "languages": ["python", "sh", *recipe.languages],
        }
        (draft / FACTS).write_text(json.dumps(facts), encoding="utf-8")
        publish(draft, folder)
    return read_image(recipe.name)


def first_files(kernel: KernelFiles, python: str) -> bytes:
    steps = _FIRST_STEPS.format(modules=" ".join(kernel.modules), python=python, lines=_FIRST_LINES)
    files = {
        "init": (steps.encode(), 0o755),
        "bin/busybox": (kernel.shell, 0o755),
        **{f"modules/{name}.ko": (content, 0o444) for name, content in kernel.modules.items()},
    }
    return cpio.archive(("dev", "root", "bin", "modules"), files)


def _write_disk(layer: Path, disk: Path, build_dir: BuildDir, made_at: int) -> None:
    tree = build_dir.folder / "tree"
    with tarfile.open(layer) as archive:
        # Ours, and of Debian's packages; a name cannot lead out of the folder.
        archive.extractall(tree, filter="tar")
    write_erofs(tree, disk, made_at)


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for name in (KERNEL, FIRST_FILES, ROOT):
        with (folder / name).open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return f"sha256:{digest.hexdigest()}"


def publish(draft: Path, folder: Path) -> None:
    """Takes the place of the image of that name, if there is one; machines that run keep what they have open.

    $FUMEHOOD_MACHINES may be on another disk than the build: nothing is replaced before all of it is there.
    """
    make_folder("images")
    with closing(lock_exclusive(folder.parent / "lock")):
        old, new = (folder.with_name(f".{folder.name}.{word}") for word in ("old", "new"))
        remove_folder(old)
        remove_folder(new)
        try:
            shutil.move(draft, new)
        except OSError:
            remove_folder(new)
            raise
        if folder.exists():
            folder.rename(old)
        new.rename(folder)
        remove_folder(old)
