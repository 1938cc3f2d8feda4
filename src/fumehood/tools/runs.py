"""The tools that run what a model writes, and what their descriptions tell it of the sandbox, as the policy has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from fumehood.sandbox.request import RunOptions
from fumehood.tools.result import ToolOutput, describe_run
from fumehood.tools.tool import Arguments, Risk, Tool, ToolContext

if TYPE_CHECKING:
    from fumehood.sandbox.interface import AnySandbox


from collections.abc import Sequence

from fumehood.host.interpreter import own_interpreter
from fumehood.policy import Policy, format_duration, format_size

_MOST_NAMED = 40


def about_python(policy: Policy) -> str:
    return f"{_interpreter(policy)}, {_packages(policy)}. {_network(policy)} {_limits(policy)}"


def about_shell(policy: Policy) -> str:
    return f"{_commands(policy)}{_network(policy)} {_limits(policy)}"


def _interpreter(policy: Policy) -> str:
    """Containers and machines have the Python of their image, which is not known before one is open."""
    if policy.backend in ("docker", "gvisor", "microvm"):
        return "Python of the image"
    return "Python {}.{}".format(*own_interpreter().version)


def _packages(policy: Policy) -> str:
    environment = policy.environment
    named = [_listed(environment.packages)] if environment.packages else []
    if environment.requirements is not None:
        named.append("those of a requirements file")
    if not named:
        return "with the standard library alone; nothing can be installed"
    return f"with {' and '.join(named)}; nothing else can be installed"


def _commands(policy: Policy) -> str:
    commands = policy.commands
    allowed = "" if commands.allow is None else f"Allowed commands: {_listed(commands.allow)}. "
    return allowed + (f"Not allowed: {_listed(commands.deny)}. " if commands.deny else "")


def _network(policy: Policy) -> str:
    hosts = [rule.host for rule in policy.network.allow]
    return f"Network: {_listed(hosts)} only." if hosts else "There is no network."


def _limits(policy: Policy) -> str:
    limits = policy.resources
    return f"A run may take {format_duration(limits.timeout)} and {format_size(limits.memory)} of memory."


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more if names else "none"


Seconds = Annotated[
    Annotated[float, Field(gt=0)] | None,
    Field(description="Seconds after which it is ended; the policy's limit by default."),
]


class PythonArguments(Arguments):
    code: Annotated[str, Field(min_length=1, description="Python source. What is to be seen has to be printed.")]
    timeout: Seconds = None


class ShellArguments(Arguments):
    command: Annotated[str, Field(min_length=1, description="A command line for bash; pipes and several lines work.")]
    cwd: Annotated[str, Field(description="The folder to run it in; the workspace by default.")] = ""
    timeout: Seconds = None


async def _run_python(context: ToolContext, given: PythonArguments) -> ToolOutput:
    return describe_run(await context.run(given.code, **limits(context.sandbox, given.timeout)))


async def _run_shell(context: ToolContext, given: ShellArguments) -> ToolOutput:
    options: RunOptions = {"language": "bash", "cwd": given.cwd, **limits(context.sandbox, given.timeout)}
    return describe_run(await context.run(given.command, **options))


def limits(sandbox: AnySandbox, timeout: float | None) -> RunOptions:
    """A model that asks for too much gets what there is: it cannot know the policy."""
    return {} if timeout is None else {"timeout": min(timeout, sandbox.policy.resources.timeout)}


PYTHON = Tool(
    "python",
    "Run Python code in an isolated sandbox and see what it prints. Files in the current folder are kept between "
    "calls.",
    PythonArguments,
    Risk.HIGH,
    _run_python,
    about=about_python,
    is_recorded_first=True,
)
SHELL = Tool(
    "shell",
    "Run a command line with bash in an isolated sandbox and see what it prints. Files in the current folder are kept "
    "between calls; variables and background processes are not.",
    ShellArguments,
    Risk.HIGH,
    _run_shell,
    about=about_shell,
    is_recorded_first=True,
)
