"""The folder of this user's log, which other users can neither read nor change."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from fumehood.errors import AuditError, UsageError
from fumehood.host.folders import PrivateFolder, user_folder

VARIABLE = "FUMEHOOD_AUDIT"
OFF = "off"
DATABASE = "audit.db"
FOLDER = PrivateFolder("the audit log", VARIABLE, error=AuditError)


def find_folder(variables: Mapping[str, str]) -> Path | None:
    """$FUMEHOOD_AUDIT, else the user's state folder; None when the variable says `off`."""
    chosen = variables.get(VARIABLE)
    if chosen == OFF:
        return None
    if chosen:
        if not os.path.isabs(chosen):
            raise UsageError(f"{VARIABLE} {chosen!r} must be an absolute path, or `{OFF}`")
        return Path(chosen)
    return user_folder("state", variables, VARIABLE) / "audit"
