"""What a tool's description tells a model of its sandbox: Python, packages, commands, network, limits."""

from __future__ import annotations

from collections.abc import Sequence

from fumehood.host.interpreter import own_interpreter
from fumehood.policy import Policy, format_duration, format_size

_MOST_NAMED = 40
_NOTHING_ELSE = "nothing else can be installed"


def about_python(policy: Policy) -> str:
    return f"{_interpreter(policy)}, {_packages(policy)}. {_network(policy)} {_limits(policy)}"


def about_shell(policy: Policy) -> str:
    return f"{_commands(policy)}{_network(policy)} {_limits(policy)}"


def _interpreter(policy: Policy) -> str:
    """Containers and machines have the Python of their image, which is not known before one is open."""
    if policy.backend in ("docker", "gvisor", "microvm"):
        return "Python of the image"
    return "Python {}.{}".format(*own_interpreter().version)


def _packages(policy: Policy) -> str:
    environment = policy.environment
    named = [_listed(environment.packages)] if environment.packages else []
    if environment.requirements is not None:
        named.append("those of a requirements file")
    more = "`pip install` adds others if their index is among the hosts" if policy.network.allow else _NOTHING_ELSE
    return f"with {' and '.join(named) or 'the standard library alone'}; {more}"


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
