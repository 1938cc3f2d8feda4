"""A cgroup that a service manager has delegated to this process, made ready for sandboxes.

Version 2 lets a cgroup hand controllers down only while no process is in it. systemd starts a service in the very group
that it delegates (`Delegate=`), so the service moves into a child of that first.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from fumehood.backends.native.cgroups import CONTROLLERS, own_modern_group

_OWN = "server"
_MARKS = ("user.delegate", "trusted.delegate")


def use_delegated_cgroup(proc: Path = Path("/proc/self")) -> Path | None:
    """The group below which sandboxes can have theirs; None if none was delegated, and then nothing has changed."""
    group = own_modern_group(proc)
    if group is None or not _is_delegated(group) or not _is_alone_in(group):
        return None
    own = group / _OWN
    try:
        own.mkdir(exist_ok=True)
        (own / "cgroup.procs").write_text(str(os.getpid()))
        offered = (group / "cgroup.controllers").read_text().split()
        (group / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in CONTROLLERS if name in offered))
    except OSError:
        return None
    return group


def _is_delegated(group: Path) -> bool:
    """systemd marks such a group; one that belongs to an ordinary user can have come to it in no other way."""
    for mark in _MARKS:
        with suppress(OSError):
            if os.getxattr(group, mark) == b"1":
                return True
    return os.geteuid() != 0 and group.stat().st_uid == os.geteuid()


def _is_alone_in(group: Path) -> bool:
    return (group / "cgroup.procs").read_text().split() == [str(os.getpid())]
