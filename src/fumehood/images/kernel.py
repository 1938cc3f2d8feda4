"""The kernel of machines: Debian's for clouds, downloaded and taken apart. Nothing of it is installed or run here."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fumehood.errors import StepFailedError, UsageError
from fumehood.host.child_process import run_child
from fumehood.host.interpreter import own_interpreter
from fumehood.images.build_dir import BuildDir

_META_PACKAGE = "linux-image-cloud-amd64"
_SHELL_PACKAGE = "busybox-static"
_STEP = "fetching a kernel for machines"
_WANTED = ("virtio_pci", "virtio_blk", "virtio_console", "erofs")
_NEEDS = re.compile(rb"\0depends=([a-z0-9_,-]*)\0", re.ASCII)
_SECTORS_OF_SETUP, _PAYLOAD = 0x1F1, 0x248
_SECTOR_BYTES, _USUAL_SECTORS = 512, 4
_LZ4_LEGACY = b"\x02\x21\x4c\x18"


@dataclass(frozen=True, slots=True)
class KernelFiles:
    release: str
    kernel: bytes
    """As QEMU starts it: not compressed, with an entry for hypervisors."""
    modules: dict[str, bytes]
    """In the order in which each needs those before it."""
    shell: bytes
    """A busybox, for the first steps."""


def fetch_kernel(build_dir: BuildDir, progress: Callable[[str], None], heartbeat: Callable[[], None]) -> KernelFiles:
    """From the package sources of this machine."""
    folder = build_dir.folder / "kernel"
    folder.mkdir()
    folder.chmod(0o755)
    package = _newest_kernel()
    progress(f"downloading {package}")
    for name in (package, _SHELL_PACKAGE):
        _download(name, folder, build_dir, heartbeat)
    root = folder / "root"
    for archive in sorted(folder.glob("*.deb")):
        _run([_find("dpkg-deb"), "-x", str(archive), str(root)], build_dir, heartbeat)
    release = next((root / "lib/modules").iterdir()).name
    found = {path.stem.replace("-", "_"): path for path in (root / "lib/modules" / release / "kernel").rglob("*.ko")}
    return KernelFiles(
        release,
        unpacked((root / f"boot/vmlinuz-{release}").read_bytes()),
        _with_needs(found),
        (root / "bin/busybox").read_bytes(),
    )


def _with_needs(found: Mapping[str, Path]) -> dict[str, bytes]:
    modules: dict[str, bytes] = {}

    def add(name: str) -> None:
        if name in modules:
            return
        if name not in found:
            raise StepFailedError(_STEP, f"the kernel has no module {name}")
        content = found[name].read_bytes()
        needs = _NEEDS.search(content)
        for need in needs[1].decode().split(",") if needs else ():
            if need:
                add(need.replace("-", "_"))
        modules[name] = content

    for name in _WANTED:
        add(name)
    return modules


def unpacked(image: bytes) -> bytes:
    """The kernel inside of a bzImage, which a machine would take seconds to decompress: the ELF file itself."""
    sectors = image[_SECTORS_OF_SETUP] or _USUAL_SECTORS
    start, size = (int.from_bytes(image[_PAYLOAD + at : _PAYLOAD + at + 4], "little") for at in (0, 4))
    begin = (sectors + 1) * _SECTOR_BYTES + start
    payload = image[begin : begin + size]
    if not payload.startswith(_LZ4_LEGACY):
        raise StepFailedError(_STEP, "the kernel is not compressed with LZ4")
    # The last four bytes are its size when unpacked.
    done = subprocess.run([_find("lz4"), "-d", "-q", "-c"], input=payload[:-4], capture_output=True, check=False)
    if done.returncode != 0 or not done.stdout.startswith(b"\x7fELF"):
        raise StepFailedError(_STEP, f"lz4 could not unpack the kernel: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def _newest_kernel() -> str:
    """The package that Debian's package for "the newest one" depends on."""
    words = [_find("apt-cache"), "depends", "--important", _META_PACKAGE]
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, env={"PATH": "/usr/bin:/bin", "LANG": "C"}
    )
    found = re.search(r"Depends: (linux-image-[a-z0-9.+-]+)", done.stdout)
    if found is None:
        raise UsageError(
            f"{_STEP}: the package sources of this machine have no {_META_PACKAGE}. Run `sudo apt-get update` on a "
            "Debian machine, or build the image on one."
        )
    return found[1]


def _download(package: str, folder: Path, build_dir: BuildDir, heartbeat: Callable[[], None]) -> None:
    # It writes to where it is.
    script = 'cd "$1" && exec apt-get download -o APT::Sandbox::User=root "$2"'
    _run([_find("sh"), "-c", script, "sh", str(folder), package], build_dir, heartbeat)


def _run(command: list[str], build_dir: BuildDir, heartbeat: Callable[[], None]) -> None:
    ended = run_child(
        command,
        python=own_interpreter().executable,
        variables={name: value for name, value in os.environ.items() if name in _KEPT},
        held=build_dir.lock.descriptor,
        on_line=lambda _: None,
        heartbeat=heartbeat,
    )
    if ended.code != 0:
        lines = ended.said.strip().splitlines()
        raise StepFailedError(_STEP, lines[-1] if lines else f"{command[0]} ended with code {ended.code}")


_KEPT = ("PATH", "HOME", "http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "APT_CONFIG")


def _find(command: str) -> str:
    found = shutil.which(command)
    if found is None:
        raise UsageError(
            f"an image for machines is made with {command}, which is not here: `sudo apt-get install "
            "qemu-system-x86 mmdebstrap erofs-utils lz4`"
        )
    return found
