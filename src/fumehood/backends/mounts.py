"""The host's side of a policy's mounts: that a source is there, which one it is, and what must not lie in it."""

from __future__ import annotations

import os
from pathlib import Path

from fumehood.backends.interface import Enforcement
from fumehood.errors import UnenforceableError, UsageError
from fumehood.policy import Policy
from fumehood.policy.sockets import MOST_ENTRIES, REMEDY, find_socket


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
        raise UsageError(f"mount source {source!r} cannot be used: {reason}. Check the path.") from error
    return resolved


def writable_mounts(policy: Policy) -> dict[str, bool]:
    """Their targets, and whether programs may make sockets in them."""
    return {mount.target: mount.sockets for mount in policy.filesystem.mounts if mount.mode == "rw"}


async def refuse_sockets_aside(policy: Policy, backend: str) -> bool:
    """In a thread, because large mounts take a while. Returns whether all of them could be searched."""
    if not policy.filesystem.mounts:
        return True
    import anyio.to_thread

    return await anyio.to_thread.run_sync(_refuse_sockets, policy, backend, abandon_on_cancel=True)


def _refuse_sockets(policy: Policy, backend: str) -> bool:
    is_complete = True
    for mount in policy.filesystem.mounts:
        if mount.sockets:
            continue
        search = find_socket(existing_source(mount.source))
        if search.socket is not None:
            raise UnenforceableError(
                "filesystem.mounts",
                backend=backend,
                reason=f"{search.socket!r} in the mount at {mount.target!r} is a unix socket, and programs that see it "
                "can connect to it",
                remedy=f"{REMEDY.capitalize()}.",
            )
        is_complete = is_complete and search.is_complete
    return is_complete


def sockets_report(mechanism: str, *, is_searched: bool) -> Enforcement:
    """`mechanism` is how mounts are shown."""
    if is_searched:
        return Enforcement("filesystem.mounts", f"{mechanism}, searched for sockets when the sandbox opened")
    found = f"{mechanism}, searched for sockets as far as {MOST_ENTRIES} entries or a second go"
    return Enforcement("filesystem.mounts", found, partial=True)
