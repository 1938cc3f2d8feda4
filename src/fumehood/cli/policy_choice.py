"""Which policy a command uses: the one that --policy names, else the project's, else none."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from fumehood.policy import Policy, read_policy

if TYPE_CHECKING:
    from fumehood.cli.overrides import Arguments


def choose(chosen: Arguments, default: Policy | None) -> Policy:
    """The policy before other options change it. `default` is the one of a command without --policy."""
    if chosen.policy is not None:
        return read_policy(chosen.policy, "--policy")
    if not chosen.no_config and (found := _find()):
        from fumehood.cli.project_policy import load

        policy = load(found)
        chosen.policy = chosen.found = found
        return policy if default is None else _with_limits(policy, default)
    return default or Policy()


def tell(chosen: Arguments) -> None:
    """Prints which file was found, on a terminal only."""
    from fumehood.cli.output import say

    if chosen.found is not None and os.isatty(2):
        say(f"policy: {chosen.found}")


def _find() -> str | None:
    from fumehood.cli.project_policy import find

    try:
        return find(os.getcwd())
    except FileNotFoundError:  # the current folder was removed
        return None


def _with_limits(policy: Policy, default: Policy) -> Policy:
    """With the limits of `default` in place of those that the project's policy leaves as they are."""
    usual = Policy().resources
    limits = {key: value for key, value in default.resources if getattr(policy.resources, key) == getattr(usual, key)}
    return policy.override({"resources": limits})
