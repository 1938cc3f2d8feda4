"""Whether the code that this process runs is still the code on the disk: a client would run what is there now."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import fumehood
import fumehood_client


class CodeOnDisk:
    """The files of this installation as they were when the process began.

    An installer makes, removes or renames a folder beside the packages. In a clone, every file can change by itself.
    """

    def __init__(self) -> None:
        package = Path(fumehood.__file__).parent
        is_installed = (package.parent / f"fumehood-{fumehood.__version__}.dist-info").is_dir()
        self._files = [
            *filter(os.path.isdir, sys.path),
            os.path.realpath(sys.executable),
            fumehood_client.__file__,
            *(() if is_installed else map(os.fspath, package.rglob("*.py"))),
        ]
        self._marks = self._look()

    def has_changed(self) -> bool:
        try:
            return self._look() != self._marks
        except OSError:  # one is gone
            return True

    def _look(self) -> list[int]:
        """When each was last written, exchanged or renamed, by the kernel's word: no program can set that."""
        return [details.st_ctime_ns for details in map(os.stat, self._files)]
