"""The tools that run what a model writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from fumehood.sandbox.request import RunOptions
from fumehood.tools.result import ToolOutput, describe_run
from fumehood.tools.sandbox_description import about_python, about_shell
from fumehood.tools.tool import Arguments, Risk, Tool, ToolContext

if TYPE_CHECKING:
    from fumehood.sandbox.interface import AnySandbox

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
