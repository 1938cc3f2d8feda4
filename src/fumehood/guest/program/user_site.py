"""Packages that programs of the sandbox have installed themselves: in HOME, as pip does it without other rights.

Joins the path of programs and sessions alone. No process of ours looks there, since programs write what is in it.
"""

from __future__ import annotations

import sys
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    SourceFileLoader,
    SourcelessFileLoader,
)

from ..contract.paths import user_site

_LOADERS = (
    (ExtensionFileLoader, EXTENSION_SUFFIXES),
    (SourceFileLoader, SOURCE_SUFFIXES),
    (SourcelessFileLoader, BYTECODE_SUFFIXES),
)


_FOLDER = user_site((sys.version_info[0], sys.version_info[1]))
# Made here because Python itself would make none for a folder that is not there yet, and would not look again once a
# program has installed the first package. It has looked at nothing yet.
_FINDER = FileFinder(_FOLDER, *_LOADERS)


def join_path() -> None:
    """Last of all, so that no package takes the place of another module."""
    sys.path.append(_FOLDER)
    sys.path_importer_cache[_FOLDER] = _FINDER


def leave_path() -> None:
    """Undoes `join_path`."""
    sys.path.remove(_FOLDER)
    del sys.path_importer_cache[_FOLDER]
