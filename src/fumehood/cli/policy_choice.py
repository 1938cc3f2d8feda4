"""Which policy a command uses: the one that --policy names, else the project's, which is looked for, else none.

`hood.yaml` is looked for in the current folder and in those above it, up to the user's home, on one file system. A
folder that every user may write to, such as /tmp, ends the search: others can put files there, though not move what
lies below. What costs time is imported when a file is found.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fumehood.policy import Policy, deny_all, read_policy
from fumehood.policy.source import visible

if TYPE_CHECKING:
    from fumehood.cli.overrides import Arguments

NAME = "hood.yaml"


def choose(chosen: Arguments, default: Policy | None) -> Policy:
    """The policy before other options change it. `default` is the one of a command without --policy."""
    if chosen.policy is not None:
        return read_policy(chosen.policy, "--policy")
    if not chosen.no_config and (found := _find()):
        from fumehood.cli.project_policy import load

        policy = load(found)
        chosen.policy = chosen.found = found
        return policy if default is None else _with_limits(policy, default)
    return default or deny_all()


def tell(chosen: Arguments) -> None:
    """Prints which file was found, on a terminal only."""
    from fumehood.cli.output import say

    if chosen.found is not None and os.isatty(2):
        say(f"policy: {visible(chosen.found)}")


def find(start: str) -> str | None:
    """The nearest project policy, whoever wrote it. UsageError if a nearer one was trusted and is gone."""
    passed: list[str] = []
    for folder in _folders(start):
        path = os.path.join(folder, NAME)
        if os.path.lexists(path):
            if passed:
                from fumehood.cli.project_policy import refuse_if_gone

                refuse_if_gone(passed, path)
            return path
        passed.append(path)
    return None


def is_shared(folder: os.stat_result) -> bool:
    """Whether every user may put files there, as in /tmp."""
    return bool(folder.st_mode & stat.S_ISVTX and folder.st_mode & stat.S_IWOTH)


def _find() -> str | None:
    try:
        start = os.getcwd()
    except FileNotFoundError:  # the current folder was removed
        return None
    return find(start)


def _folders(start: str) -> Iterator[str]:
    home = os.path.realpath(os.path.expanduser("~"))
    device: int | None = None
    for folder in _upwards(start):
        try:
            details = os.stat(folder)
        except OSError:
            return
        if device not in (None, details.st_dev) or is_shared(details):
            return
        yield folder
        if folder == home:
            return
        device = details.st_dev


def _upwards(folder: str) -> Iterator[str]:
    """The folder and all above it, by name."""
    while folder != "/":
        yield folder
        folder = os.path.dirname(folder)
    yield folder


def _with_limits(policy: Policy, default: Policy) -> Policy:
    """With the limits of `default` in place of those that the project's policy leaves as they are."""
    usual = Policy().resources
    limits = {key: value for key, value in default.resources if getattr(policy.resources, key) == getattr(usual, key)}
    return policy.override({"resources": limits})
