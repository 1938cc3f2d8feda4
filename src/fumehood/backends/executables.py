"""Which programs a sandbox may execute, as far as the kernel can see to that for its policy."""

from __future__ import annotations

from fumehood.backends.interface import Enforcement
from fumehood.policy import Mount, Policy
from fumehood.policy.paths import is_inside

# What runs the command lines that were judged; whatever they start has to be named.
SHELLS = ("bash", "sh")
REMEDY = "Name the programs in commands.allow, by name or whole path, or say commands.enforce: parse."
_JUDGED = "command lines and argv are judged on the host before anything starts"


def executables(policy: Policy) -> list[str] | None:
    """Names and paths; None when any program may be executed."""
    commands = policy.commands
    if commands.is_open or commands.enforce == "parse" or _obstacle(policy) is not None:
        return None
    return list(dict.fromkeys((*commands.programs, *SHELLS)))


def executes_mount(policy: Policy, mount: Mount) -> bool:
    """Whether code in a mount may be executed: always, unless the kernel sees to it and no rule names a file in it."""
    named = executables(policy)
    if named is None:
        return True
    return mount.mode == "ro" and any(is_inside(name, mount.target) for name in named if name.startswith("/"))


def report(policy: Policy, *, has_landlock: bool, gap: str = "") -> Enforcement | None:
    """How `commands` are enforced; partial where the kernel was to see to it and cannot, or not wholly (`gap`)."""
    commands = policy.commands
    if commands.is_open:
        return None
    if commands.enforce == "parse":
        return Enforcement("commands", _JUDGED)
    obstacle = _obstacle(policy) or (None if has_landlock else "the kernel has no Landlock")
    if obstacle is not None:
        why = f"{_JUDGED}, but what programs then execute is not held by the kernel: {obstacle}"
        return Enforcement("commands", why, partial=True)
    count = len(commands.programs)
    named = f"Landlock lets {count} named programs be executed, with their helpers and a shell, and nothing else"
    return Enforcement("commands", f"{_JUDGED}; {named}{gap}", partial=bool(gap))


def _obstacle(policy: Policy) -> str | None:
    if policy.backend == "gvisor":
        return "gVisor has no Landlock"
    return policy.commands.unnamed
