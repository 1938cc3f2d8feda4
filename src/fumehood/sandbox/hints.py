"""What a program that failed ran into, as far as its sandbox can tell: the network, a module, a disk of the host's."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from fumehood.policy import Policy
from fumehood.results import Cause, RunResult
from fumehood.sandbox.egress import network_hint

if TYPE_CHECKING:
    from fumehood.egress.log import EgressFailure

# A disk with less room than this may have refused a write.
_ROOM_BYTES = 64 * 1024


def with_hint(
    result: RunResult, stderr: bytes, policy: Policy, *, is_open: bool, failures: Sequence[EgressFailure] = ()
) -> RunResult:
    """`is_open` if the sandbox has a way to the network, `failures` are what went wrong at its other end."""
    if not result.ok and b"ModuleNotFoundError" in stderr:
        from fumehood.sandbox.module_hint import module_hint

        result = module_hint(result, stderr, can_install=is_open)
    result = network_hint(result, stderr, is_open=is_open, failures=failures)
    return _full_mount_hint(result, policy)


def _full_mount_hint(result: RunResult, policy: Policy) -> RunResult:
    """Says of a program that failed on a full disk when it is the host's, behind a folder that is mounted rw."""
    if result.cause is not Cause.DISK:
        return result
    for mount in policy.filesystem.mounts:
        if mount.mode == "rw" and _is_full(mount.source):
            detail = f"the host's disk behind {mount.target} is full; make room where {mount.source} is"
            return replace(result, detail=detail)
    return result


def _is_full(path: str) -> bool:
    try:
        usage = os.statvfs(path)
    except OSError:  # it is on another machine, or gone
        return False
    return usage.f_bavail * usage.f_frsize < _ROOM_BYTES or (usage.f_files > 0 and usage.f_favail == 0)
