"""An executor for AutoGen agents: their code blocks run in a Fumehood sandbox.

    executor = SandboxCodeExecutor(timeout=15, mem_limit="512m", network_disabled=True)
    async with executor:
        await executor.execute_code_blocks([CodeBlock(code="print(6 * 7)", language="python")], CancellationToken())

It takes the options that AutoGen's executor for Docker takes, and those that people pass to Docker beside them. Each of
them is enforced by a policy, or refused by name.

    options      the options of an executor, as data that AutoGen can store
    arguments    the options that describe a container, as a table; values has their parsers
    merge        options and a policy become the policy that is enforced
    setup        what is in the sandbox before the first block, the caller's functions too
    approvals    blocks that the policy wants a yes for, and AutoGen's function that gives it
    blocks       code blocks as scripts, and their results for the model
    executor     AutoGen's interface
"""

from importlib.util import find_spec

if find_spec("autogen_core") is None:
    raise ImportError("fumehood.integrations.autogen needs AutoGen: pip install 'fumehood[autogen]'")

from fumehood.integrations.autogen.blocks import SandboxCodeResult
from fumehood.integrations.autogen.executor import SandboxCodeExecutor
from fumehood.integrations.autogen.options import ExecutorError, OptionError, SandboxCodeExecutorConfig

# For code that says `from autogen_ext.code_executors.docker import DockerCommandLineCodeExecutor` today.
DockerCommandLineCodeExecutor = SandboxCodeExecutor

__all__ = [
    "DockerCommandLineCodeExecutor",
    "ExecutorError",
    "OptionError",
    "SandboxCodeExecutor",
    "SandboxCodeExecutorConfig",
    "SandboxCodeResult",
]
