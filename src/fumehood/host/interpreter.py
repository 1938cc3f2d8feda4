"""The Python that runs inside a sandbox: the one this process runs on, without its packages. Reads, never changes."""

from __future__ import annotations

import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES

from fumehood.frozen import frozen

PACKAGES_PLACE = "/opt/environment"
"""Where a sandbox sees the packages of its environment."""


@frozen
class Interpreter:
    """The interpreter itself, never a virtual environment around it."""

    executable: str
    prefix: str
    version: tuple[int, int]

    @property
    def site_packages(self) -> str:
        return f"{self.prefix}/lib/python{self.version[0]}.{self.version[1]}/site-packages"


def own_interpreter() -> Interpreter:
    # In a virtual environment sys.executable is a link; the interpreter itself lives in the base prefix.
    executable = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    return Interpreter(executable, os.path.realpath(sys.base_prefix), (sys.version_info[0], sys.version_info[1]))


def compatibility_tag() -> str:
    """What decides which wheels fit and how they are compiled: implementation, version, ABI, platform, C library."""
    version = ".".join(map(str, sys.version_info[:3]))
    return " ".join((sys.implementation.name, version, EXTENSION_SUFFIXES[0], _c_library()))


def _c_library() -> str:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or "unknown"
    except ValueError:
        return "not glibc"
