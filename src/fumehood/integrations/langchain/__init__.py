"""Fumehood for LangChain: a sandbox as the backend of a deep agent, and tools for any other.

with SandboxBackend(policy) as backend:
    agent = create_deep_agent(model, backend=backend)

async with open_tools(policy) as tools:
    agent = create_agent(model, tools)

backend    what deepagents expect of a sandbox: commands, files in and out
tools      python, shell, files and your own functions as LangChain's tools
"""

from importlib.util import find_spec

if find_spec("deepagents") is None:
    raise ImportError("fumehood.integrations.langchain needs deepagents: pip install 'fumehood[deepagents]'")

from fumehood.integrations.langchain.backend import SandboxBackend
from fumehood.integrations.langchain.tools import open_tools

__all__ = ["SandboxBackend", "open_tools"]
