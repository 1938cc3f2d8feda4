"""What `hood` exits with: the program's own code, or one of these."""

from __future__ import annotations

from fumehood.errors import DeniedError, FumehoodError, UsageError

TYPE_CHECKING = False  # as type checkers read it; `hood --help` needs no results, and not the modules that they import
if TYPE_CHECKING:
    from fumehood.results import RunResult

PROBLEM_FOUND = 1
USAGE = 2
LIMIT = 123
TIMEOUT = 124
OWN_FAILURE = 125
DENIED = 126
OUT_OF_MEMORY = 137


def for_signal(number: int) -> int:
    """The exit code that a shell uses for a signal."""
    return 128 + number


INTERRUPTED = for_signal(2)  # SIGINT
BROKEN_PIPE = for_signal(13)  # SIGPIPE


def for_error(error: FumehoodError) -> int:
    match error:
        case UsageError():
            return USAGE
        case DeniedError():
            return DENIED
        case _:
            return OWN_FAILURE


def for_result(result: RunResult) -> int:
    from typing import assert_never

    from fumehood.results import Cause, Status

    match result.status:
        case Status.TIMEOUT:
            return TIMEOUT
        case Status.DENIED:
            return DENIED
        case Status.RESOURCE_EXCEEDED:
            return OUT_OF_MEMORY if result.cause is Cause.MEMORY else LIMIT
        case Status.SUCCESS | Status.ERROR | Status.CANCELLED:
            return result.exit_code
        case _:
            return assert_never(result.status)
