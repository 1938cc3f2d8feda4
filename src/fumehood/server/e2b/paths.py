"""Paths as E2B's programs write them: relative to /home/user, which is a second name of the workspace."""

from __future__ import annotations

import posixpath

from fumehood.guest.contract.paths import USER_HOME, WORKSPACE
from fumehood.policy.paths import is_inside


def inner_path(path: str) -> str:
    """The path in the sandbox's own terms, without `.` and `..`."""
    whole = posixpath.normpath(posixpath.join(USER_HOME, _without_tilde(path)))
    whole = f"/{whole.lstrip('/')}"
    return WORKSPACE + whole.removeprefix(USER_HOME) if is_inside(whole, USER_HOME) else whole


def outer_path(path: str) -> str:
    """The path as the SDKs show it."""
    whole = posixpath.join(WORKSPACE, path)
    return USER_HOME + whole.removeprefix(WORKSPACE) if is_inside(whole, WORKSPACE) else whole


def _without_tilde(path: str) -> str:
    return path[2:] if path.startswith("~/") else "" if path == "~" else path
