"""A full disk of this machine, as an error that names the folder: the kernel names a number alone."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fumehood.errors import StepFailedError

_FULL = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def explained(step: str, folder: Path, variable: str) -> Iterator[None]:
    """`variable` moves the folder to another disk."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        remedy = f"Make room there (`hood gc`), or set {variable} to a folder on another disk."
        raise StepFailedError(step, f"there is no room in {folder}", remedy=remedy) from error
