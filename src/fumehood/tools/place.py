"""A sandbox in the words of a tool's description: what a model would otherwise find out by failing calls.

Only what the policy says of the inside; nothing of the host.
"""

from __future__ import annotations

from collections.abc import Sequence

from fumehood.host.interpreter import own_interpreter
from fumehood.policy import Policy, format_duration, format_size

_MOST_NAMED = 40


def about_python(policy: Policy) -> str:
    return f"{_interpreter(policy)}, {_packages(policy)}. {_network(policy)} {_limits(policy)}"


def about_shell(policy: Policy) -> str:
    return f"{_commands(policy)}{_network(policy)} {_limits(policy)}"


def _interpreter(policy: Policy) -> str:
    """Containers have the Python of their image, which nobody knows before one is open."""
    if policy.backend in ("docker", "gvisor"):
        return "Python of the container"
    return "Python {}.{}".format(*own_interpreter().version)


def _packages(policy: Policy) -> str:
    environment = policy.environment
    named = [_listed(environment.packages)] if environment.packages else []
    if environment.requirements is not None:
        named.append("those of a requirements file")
    if not named:
        return "with the standard library alone; nothing can be installed"
    return f"with {' and '.join(named)}; nothing else can be installed"


def _commands(policy: Policy) -> str:
    commands = policy.commands
    allowed = "" if commands.allow is None else f"Allowed commands: {_listed(commands.allow)}. "
    return allowed + (f"Not allowed: {_listed(commands.deny)}. " if commands.deny else "")


def _network(policy: Policy) -> str:
    hosts = [rule.host for rule in policy.network.allow]
    return f"Network: {_listed(hosts)} only." if hosts else "There is no network."


def _limits(policy: Policy) -> str:
    limits = policy.resources
    return f"A run may take {format_duration(limits.timeout)} and {format_size(limits.memory)} of memory."


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more if names else "none"
