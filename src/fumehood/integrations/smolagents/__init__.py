"""An executor for smolagents' code agents: the code that they write runs in a Fumehood sandbox.

with SandboxPythonExecutor(policy) as executor:
    agent = CodeAgent(tools=[], model=model, executor=executor)

executor     smolagents' interface, and a session of a sandbox behind it: tools and variables are sent there as source
answers      what comes back that way, as values
"""

from importlib.util import find_spec

if find_spec("smolagents") is None:
    raise ImportError("fumehood.integrations.smolagents needs smolagents: pip install 'fumehood[smolagents]'")

from fumehood.integrations.smolagents.executor import CodeFailedError, SandboxPythonExecutor

__all__ = ["CodeFailedError", "SandboxPythonExecutor"]
