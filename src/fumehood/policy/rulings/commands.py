"""Command lines: the words around what the command policy decides."""

from __future__ import annotations

from fumehood.errors import UsageError
from fumehood.policy.model import Policy
from fumehood.policy.rulings.ruling import Ruling


def decide_command(policy: Policy, line: str) -> Ruling:
    commands = policy.commands
    if commands.allow is None and not commands.deny:
        return Ruling(f"command {line}", True, "commands says nothing, so any may run inside", "commands")
    raise UsageError("commands cannot be judged by this version; remove the test, or the rules of commands")
