"""The host's side of a policy's mounts: that a source is there, and which one it is."""

from __future__ import annotations

import os
from pathlib import Path

from fumehood.errors import UsageError
from fumehood.policy import Policy


def mount_identities(policy: Policy) -> list[str]:
    """The folders themselves, not their names: an old sandbox still shows one that was removed and made anew."""
    return [identity(existing_source(mount.source)) for mount in policy.filesystem.mounts]


def identity(path: str) -> str:
    details = os.stat(path)
    return f"{details.st_dev}:{details.st_ino}"


def existing_source(source: str) -> str:
    try:
        resolved = str(Path(source).resolve(strict=True))
        os.stat(resolved)
    except (OSError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "its symbolic links form a loop"
        raise UsageError(f"mount source {source!r} cannot be used: {reason}. Check the path in the policy.") from error
    return resolved
