"""Fumehood for the OpenAI Agents SDK: a sandbox for sandbox agents, and tools for any other.

RunConfig(sandbox=SandboxRunConfig(client=FumehoodSandboxClient(policy)))

async with open_tools(policy) as tools:
    agent = Agent(name="coder", tools=tools)

client       makes sessions; the policy is its own, and nothing that a session stores can change it
session      the SDK's interface, and a sandbox behind it; workspace_archive packs and unpacks its files
processes    commands that go on between calls, with or without a terminal
tools        python, shell, files and your own functions as function tools; the SDK's shell tool
"""

from importlib.util import find_spec

if find_spec("agents") is None:
    raise ImportError("fumehood.integrations.openai_agents needs the SDK: pip install 'fumehood[openai-agents]'")

from fumehood.integrations.openai_agents.client import FumehoodSandboxClient, FumehoodSandboxClientOptions
from fumehood.integrations.openai_agents.session import FumehoodSandboxSession, FumehoodSandboxSessionState
from fumehood.integrations.openai_agents.tools import open_shell_tool, open_tools

__all__ = [
    "FumehoodSandboxClient",
    "FumehoodSandboxClientOptions",
    "FumehoodSandboxSession",
    "FumehoodSandboxSessionState",
    "open_shell_tool",
    "open_tools",
]
