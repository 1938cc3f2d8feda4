"""A sandbox provider for Inspect: `sandbox="fumehood"`, or `sandbox=("fumehood", "policy.yaml")`, in a task.

    environment   Inspect's interface, and a sandbox behind it
    tool_server   what Inspect brings along for some of its tools, in the background

Inspect finds it by the entry point `fumehood` of the group `inspect_ai`, without an import.
"""

from importlib.util import find_spec

if find_spec("inspect_ai") is None:
    raise ImportError("fumehood.integrations.inspect_ai needs Inspect: pip install 'fumehood[inspect]'")

from fumehood.integrations.inspect_ai.environment import FumehoodSandboxEnvironment

__all__ = ["FumehoodSandboxEnvironment"]
