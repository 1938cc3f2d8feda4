"""An executor for AutoGen agents: their code blocks run in a Fumehood sandbox.

    executor = SandboxCodeExecutor(timeout=15, mem_limit="512m", network_disabled=True)
    async with executor:
        await executor.execute_code_blocks([CodeBlock(code="print(6 * 7)", language="python")], CancellationToken())

It takes the options that AutoGen's executor for Docker takes, and those that people pass to Docker beside them. Each of
them is enforced by a policy, or refused by name.

    options      what can be said of an executor, as data that AutoGen can store
    arguments    the options that describe a container: each is a wish, or refused; values and volumes read them
    wishes       what they add up to
    planning     from wishes and a policy to what is enforced; tightening compares the two, combination makes it one
    furnishing   what lies in the sandbox before the first block; functions are those of the caller's
    blocks       what a code block asks for
    reports      what the model is told
    executor     AutoGen's interface, and a sandbox behind it; calls are those under way
"""

from importlib.util import find_spec

if find_spec("autogen_core") is None:
    raise ImportError("fumehood.integrations.autogen needs AutoGen: pip install 'fumehood[autogen]'")

from fumehood.integrations.autogen.executor import SandboxCodeExecutor
from fumehood.integrations.autogen.options import SandboxCodeExecutorConfig
from fumehood.integrations.autogen.refusals import ExecutorError, OptionError
from fumehood.integrations.autogen.reports import SandboxCodeResult

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
