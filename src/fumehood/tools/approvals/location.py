"""Where requests for approval are kept: in the user's state folder, beside the audit log."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from fumehood.errors import AuditError, UsageError
from fumehood.host.folders import PrivateFolder, user_folder

VARIABLE = "FUMEHOOD_APPROVALS"
FOLDER = PrivateFolder("approvals", VARIABLE, error=AuditError)


def find_folder(variables: Mapping[str, str]) -> Path:
    """$FUMEHOOD_APPROVALS, else the user's state folder. There is no way to turn them off."""
    chosen = variables.get(VARIABLE)
    if not chosen:
        return user_folder("state", variables, VARIABLE) / "approvals"
    if not os.path.isabs(chosen):
        raise UsageError(f"{VARIABLE} {chosen!r} must be an absolute path")
    return Path(chosen)
