"""The user for programs in a container, by its mounts: an engine shows files with their owners and modes.

The native backend shows a mount as the sandbox's own. An engine maps no ids, so it is done the other way round:
programs are the owner of what the caller shows to them, of whose files nothing else is inside. What that user still may
not use is refused when the sandbox opens, and not found out by a program.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass

from fumehood.backends.docker.engine import EngineFacts
from fumehood.backends.docker.users import NOBODY, ProgramUser
from fumehood.backends.mounts import existing_source
from fumehood.errors import UnenforceableError
from fumehood.policy import Policy

_ROOT = 0
_ACCESS_LIST = "system.posix_acl_access"
# An engine with ids of its own: its users are others than ours of the same number.
_MAPS_IDS = ("name=userns", "name=rootless")


@dataclass(frozen=True, slots=True)
class MountFacts:
    """What decides who may use a mount's source. What lies in it may differ."""

    source: str
    target: str
    is_writable: bool
    uid: int
    gid: int
    mode: int
    has_access_list: bool = False

    def allows(self, uid: int, gid: int) -> bool:
        """By its owner and mode. With an access list only the kernel knows."""
        shift = 6 if uid == self.uid else 3 if gid == self.gid else 0
        execute = 1 if stat.S_ISDIR(self.mode) else 0
        wanted = 4 | execute | (2 if self.is_writable else 0)
        return self.has_access_list or (self.mode >> shift) & wanted == wanted


def look_at_mounts(policy: Policy) -> tuple[MountFacts, ...]:
    return tuple(_look(mount.source, mount.target, mount.mode == "rw") for mount in policy.filesystem.mounts)


def keeps_ids(facts: EngineFacts) -> bool:
    """Whether a user in a container is the one of the same number here."""
    return facts.is_local and not any(mark in option for option in facts.security for mark in _MAPS_IDS)


def common_owner(mounts: Sequence[MountFacts]) -> ProgramUser | None:
    """The owner of all that may be written, or else of all: what programs make is the caller's then. Never root."""
    decisive = [mount for mount in mounts if mount.is_writable] or mounts
    owners = {mount.uid for mount in decisive}
    if len(owners) != 1 or _ROOT in owners:
        return None
    groups = {mount.gid for mount in decisive}
    group = groups.pop() if len(groups) == 1 and _ROOT not in groups else NOBODY.gid
    return ProgramUser(owners.pop(), group)


def refuse_strangers(mounts: Sequence[MountFacts], backend: str, user: ProgramUser) -> None:
    for mount in mounts:
        if not mount.allows(*user):
            verb, letters = ("written", "rwX") if mount.is_writable else ("read", "rX")
            raise UnenforceableError(
                "filesystem.mounts",
                backend=backend,
                reason=f"{mount.source!r} (shown at {mount.target!r}) cannot be {verb} by user {user}, which "
                f"programs run as: it belongs to {mount.uid}:{mount.gid} with mode {stat.S_IMODE(mount.mode):o}, and "
                "an engine shows it so",
                remedy=f"Give it to the user (`chown -R {user}`) or to all (`chmod -R o+{letters}`), or use "
                "backend: native, which shows mounts as the sandbox's own.",
            )


def _look(source: str, target: str, is_writable: bool) -> MountFacts:
    resolved = existing_source(source)
    details = os.stat(resolved)
    return MountFacts(
        source=resolved,
        target=target,
        is_writable=is_writable,
        uid=details.st_uid,
        gid=details.st_gid,
        mode=details.st_mode,
        has_access_list=_has_access_list(resolved),
    )


def _has_access_list(path: str) -> bool:
    try:
        return _ACCESS_LIST in os.listxattr(path)
    except OSError:
        return False  # a file system without attributes
