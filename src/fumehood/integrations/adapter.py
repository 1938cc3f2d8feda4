"""What adapters have in common: the default policy, timeouts, the output of a command as one text, errors of files."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from fumehood.errors import DeniedError, FumehoodError, UsageError
from fumehood.events import Finished, Stderr, Stdout
from fumehood.policy import AnyPolicy, Policy, Seconds, read_policy, read_seconds
from fumehood.results import Cause, RunResult
from fumehood.sandbox.command_check import DENIED_EXIT_CODE
from fumehood.sandbox.interface import AnySandbox


def default_policy(policy: AnyPolicy | None) -> Policy:
    """The policy for frameworks that work in a sandbox and take files out of it during the work.

    Without a policy: no network, no host files, no secrets; but files of the sandbox may be read, which is how
    these frameworks work, and a command has the time that their users expect.
    """
    given = read_policy(policy)
    if given is not None:
        return given
    return Policy(
        name="workshop",
        filesystem={"outputs": ["**", "/tmp/**"]},
        resources={"timeout": "10m", "output": "10M", "memory": "1G"},
    )


def shortened_timeout(policy: Policy, timeout: Seconds | None) -> float | None:
    """The timeout that a framework asks for, at most that of the policy."""
    if timeout is None:
        return None
    seconds = read_seconds(timeout) if isinstance(timeout, str) else timeout
    return min(seconds, policy.resources.timeout)


@dataclass(frozen=True)
class CommandOutput:
    output: str
    exit_code: int
    truncated: bool
    result: RunResult | None = None
    """None when the run never started."""


async def run_command(box: AnySandbox, command: str, timeout: Seconds | None) -> CommandOutput:
    """Run a command line with bash. What is not valid or denied is in the output, where a model reads it."""
    written, result = bytearray(), None
    try:
        limit = shortened_timeout(box.policy, timeout)
        async for event in box.stream(command, language="bash", timeout=limit):
            if isinstance(event, Stdout | Stderr):
                written += event.data
            elif isinstance(event, Finished):
                result = event.result
    except (UsageError, DeniedError) as error:
        return CommandOutput(f"{error}\n", DENIED_EXIT_CODE, truncated=False)
    assert result is not None
    return CommandOutput(
        with_reason(written.decode("utf-8", "replace"), result), result.exit_code, result.truncated, result
    )


def with_reason(text: str, result: RunResult) -> str:
    """The text, and below it why the run ended, unless the program ended by itself."""
    if not result.detail or result.cause is Cause.SIGNAL:
        return text
    before = text if not text or text.endswith("\n") else f"{text}\n"
    return f"{before}{result.status.value}: {result.detail}\n"


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
