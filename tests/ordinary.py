"""Folders as ordinary users have them, also where the tests are root's."""

from __future__ import annotations

import os
from pathlib import Path

ORDINARY = 12_345
"""A user who has nothing else on this machine."""


def own(folder: Path) -> int:
    """Make it and all that is in it an ordinary user's; the tester's own, who is not root. Returns whose it is."""
    if os.geteuid() != 0:
        return os.geteuid()
    for path in (folder, *folder.rglob("*")):
        os.chown(path, ORDINARY, ORDINARY, follow_symlinks=False)
    return ORDINARY
