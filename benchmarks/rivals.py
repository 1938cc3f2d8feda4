"""What people would use instead, if it is installed here: the command lines that do the same work."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from fumehood.cli.bench.runs import PROGRAM, interpreter

_IMAGES = ("fumehood:latest", "python:3.13-slim", "python:3.12-slim", "python:3.11-slim", "python")


def bubblewrap() -> list[str] | None:
    found = shutil.which("bwrap")
    if not found:
        return None
    prefix = os.path.realpath(sys.base_prefix)
    binds = ["--ro-bind", "/usr", "/usr", "--ro-bind", prefix, prefix]
    links = [word for name in ("bin", "lib", "lib64") for word in ("--symlink", f"usr/{name}", f"/{name}")]
    sealed = ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--unshare-all", "--die-with-parent"]
    return [found, *binds, *links, *sealed, interpreter(), "-I", "-S", "-c", PROGRAM]


def docker(*options: str) -> list[str] | None:
    """Needs an engine that answers and an image that is there already."""
    found, image = shutil.which("docker"), docker_image()
    if not found or not image:
        return None
    return [found, "run", "--rm", "--network", "none", *options, image, "python3", "-I", "-S", "-c", PROGRAM]


def autogen() -> Callable[[str], Any] | None:
    """AutoGen's own executor for containers, when it is installed: a folder of the host in, an executor out."""
    image = docker_image()
    try:
        from autogen_ext.code_executors.docker import DockerCommandLineCodeExecutor
    except ImportError:
        return None
    return None if image is None else lambda folder: DockerCommandLineCodeExecutor(image, work_dir=folder)


def docker_image() -> str | None:
    found = shutil.which("docker")
    if not found:
        return None
    return next((image for image in _IMAGES if _answers([found, "image", "inspect", image])), None)


def _answers(argv: list[str]) -> bool:
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0
