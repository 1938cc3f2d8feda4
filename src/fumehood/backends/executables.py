"""Which programs a sandbox may execute, as far as its policy asks the kernel to see to that."""

from __future__ import annotations

from fumehood.policy import Mount, Policy
from fumehood.policy.paths import is_inside


def executables(policy: Policy) -> list[str] | None:
    """Names and paths; None when any program may be executed."""
    return None if policy.commands.enforce != "kernel" else list(policy.commands.programs)


def executes_mount(policy: Policy, mount: Mount) -> bool:
    """Whether code in a mount may be executed: always, unless the kernel sees to it and no rule names a file in it."""
    named = executables(policy)
    if named is None:
        return True
    return mount.mode == "ro" and any(is_inside(name, mount.target) for name in named if name.startswith("/"))


def mechanism(policy: Policy) -> str:
    """In the words of an enforcement report."""
    judged = "command lines and argv are judged on the host before anything starts"
    if policy.commands.enforce != "kernel":
        return judged
    count = len(policy.commands.programs)
    return f"{judged}; Landlock lets {count} named programs be executed, and nothing that was written"
