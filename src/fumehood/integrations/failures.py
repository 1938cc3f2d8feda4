"""What went wrong with a file, as the exceptions that Python's own file functions raise: frameworks know those."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from fumehood.errors import DeniedError, FumehoodError, UsageError


def as_os_error(error: FumehoodError, path: str) -> OSError:
    """FileNotFoundError, PermissionError and so on, with our own words in them."""
    number = error.errno or (errno.EACCES if isinstance(error, DeniedError) else errno.EINVAL)
    return OSError(number, f"{os.strerror(number)}: {error}", path)


@contextmanager
def os_errors(path: str) -> Iterator[None]:
    """For what the caller or the policy can do something about; failures of ours stay what they are."""
    try:
        yield
    except (UsageError, DeniedError) as error:
        raise as_os_error(error, path) from error
