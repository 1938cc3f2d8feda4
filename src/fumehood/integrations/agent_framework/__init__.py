"""A shell for Microsoft Agent Framework whose commands run in a Fumehood sandbox.

async with SandboxShell(policy) as shell:
    agent = Agent(client=client, tools=[shell.as_function()])

shell        the framework's ShellExecutor, and a function tool of it
kept_shell   a bash that keeps its state from command to command
"""

from importlib.util import find_spec

if find_spec("agent_framework") is None or find_spec("agent_framework_tools") is None:
    raise ImportError("fumehood.integrations.agent_framework needs it: pip install 'fumehood[agent-framework]'")

from fumehood.integrations.agent_framework.shell import SandboxShell

__all__ = ["SandboxShell"]
