"""What people would use instead, if it is installed here: the command lines that do the same work."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

PROGRAM = "print(1)"
_IMAGES = ("python:3.13-slim", "python:3.12-slim", "python:3.11-slim", "python")


def interpreter() -> str:
    """The interpreter itself, not the link to it in a virtual environment."""
    return os.path.realpath(getattr(sys, "_base_executable", sys.executable))


def bubblewrap() -> list[str] | None:
    found = shutil.which("bwrap")
    if not found:
        return None
    prefix = os.path.realpath(sys.base_prefix)
    binds = ["--ro-bind", "/usr", "/usr", "--ro-bind", prefix, prefix]
    links = [word for name in ("bin", "lib", "lib64") for word in ("--symlink", f"usr/{name}", f"/{name}")]
    sealed = ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--unshare-all", "--die-with-parent"]
    return [found, *binds, *links, *sealed, interpreter(), "-I", "-S", "-c", PROGRAM]


def docker() -> list[str] | None:
    """Needs an engine that answers and an image that is there already."""
    found = shutil.which("docker")
    if not found:
        return None
    for image in _IMAGES:
        inspected = subprocess.run([found, "image", "inspect", image], capture_output=True, check=False)
        if inspected.returncode == 0:
            return [found, "run", "--rm", "--network", "none", image, "python3", "-I", "-S", "-c", PROGRAM]
    return None
