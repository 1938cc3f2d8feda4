"""Where the log of this user lies, and that nobody else can read or change it."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from fumehood.errors import AuditError, UsageError

VARIABLE = "FUMEHOOD_AUDIT"
OFF = "off"
DATABASE = "audit.db"


def find_folder(variables: Mapping[str, str]) -> Path | None:
    """$FUMEHOOD_AUDIT, else the user's state folder; None when the variable says `off`."""
    chosen = variables.get(VARIABLE)
    if chosen == OFF:
        return None
    if chosen:
        if not os.path.isabs(chosen):
            raise UsageError(f"{VARIABLE} {chosen!r} must be an absolute path, or `{OFF}`")
        return Path(chosen)
    return state_folder(variables, VARIABLE) / "audit"


def state_folder(variables: Mapping[str, str], variable: str) -> Path:
    """Where this user's state lies; `variable` is what to set where there is no such place."""
    state = variables.get("XDG_STATE_HOME", "")
    # The XDG specification: a path that is not absolute is to be ignored.
    folder = Path(state) if os.path.isabs(state) else Path(os.path.expanduser("~")) / ".local" / "state"
    if not folder.is_absolute():
        raise UsageError(f"this user has no home folder to keep state in; set {variable} to a folder of its own")
    return folder / "fumehood"


def make_private(folder: Path, what: str = "the audit log", variable: str = VARIABLE) -> None:
    """Make the folder for this user alone, or make sure that it is."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        entry, details = folder.lstat(), folder.stat()
    except OSError as error:
        raise AuditError(
            f"the folder of {what}, {folder}, cannot be used, and without it nothing runs: {error.strerror}. "
            f"Set {variable} to another folder."
        ) from error
    # A link that somebody else made may lead to another place tomorrow.
    if {entry.st_uid, details.st_uid} != {os.geteuid()}:
        raise AuditError(f"the folder of {what}, {folder}, belongs to somebody else; set {variable} to your own")
    if details.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise AuditError(f"the folder of {what}, {folder}, is open to others; run `chmod 700 {folder}`")
