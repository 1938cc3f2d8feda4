"""Fumehood for Pydantic AI: tools that run in a sandbox, and a workspace that is one.

agent = Agent(model, toolsets=[SandboxToolset(policy)])

async with SandboxWorkspaces(policy) as workspaces:
    await agent.run(task, workspace=workspaces.backend())

toolset      python, shell, files and your own functions as a toolset; approvals are deferred calls
workspace    the backend of a run's workspace, and all of an application's; lifecycle has the sandbox behind each
"""

from importlib.util import find_spec

if find_spec("pydantic_ai") is None:
    raise ImportError("fumehood.integrations.pydantic_ai needs Pydantic AI: pip install 'fumehood[pydantic-ai]'")

from fumehood.integrations.pydantic_ai.toolset import SandboxToolset
from fumehood.integrations.pydantic_ai.workspace import SandboxWorkspaceBackend, SandboxWorkspaces

__all__ = ["SandboxToolset", "SandboxWorkspaceBackend", "SandboxWorkspaces"]
