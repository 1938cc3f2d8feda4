"""Errors of files as the exceptions that Python's own file functions raise, which frameworks expect."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from fumehood.errors import DeniedError, FumehoodError, UsageError


def as_os_error(error: FumehoodError, path: str) -> OSError:
    """FileNotFoundError, PermissionError and so on, with Fumehood's message."""
    number = error.errno or (errno.EACCES if isinstance(error, DeniedError) else errno.EINVAL)
    return OSError(number, f"{os.strerror(number)}: {error}", path)


@contextmanager
def os_errors(path: str) -> Iterator[None]:
    """Translate the errors of the caller and the policy; a SandboxError stays what it is."""
    try:
        yield
    except (UsageError, DeniedError) as error:
        raise as_os_error(error, path) from error
