"""Where requests for approval are kept: in the user's state folder, beside the audit log."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from fumehood.audit.location import state_folder
from fumehood.errors import UsageError

VARIABLE = "FUMEHOOD_APPROVALS"
WHAT = "approvals"


def find_folder(variables: Mapping[str, str]) -> Path:
    """$FUMEHOOD_APPROVALS, else the user's state folder. There is no way to turn them off."""
    chosen = variables.get(VARIABLE)
    if not chosen:
        return state_folder(variables, VARIABLE) / "approvals"
    if not os.path.isabs(chosen):
        raise UsageError(f"{VARIABLE} {chosen!r} must be an absolute path")
    return Path(chosen)
