"""The tools that run what a model writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from fumehood.sandbox.request import RunOptions
from fumehood.tools.place import about_python, about_shell
from fumehood.tools.result import ToolResult
from fumehood.tools.shaping import shaped
from fumehood.tools.tool import Arguments, Risk, Tool
from fumehood.tools.watching import run_watched

if TYPE_CHECKING:
    from fumehood.sandbox.sandbox import AsyncSandbox

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


async def _run_python(sandbox: AsyncSandbox, given: PythonArguments) -> ToolResult:
    return shaped(await run_watched(sandbox, given.code, **limits(sandbox, given.timeout)))


async def _run_shell(sandbox: AsyncSandbox, given: ShellArguments) -> ToolResult:
    options: RunOptions = {"language": "bash", "cwd": given.cwd, **limits(sandbox, given.timeout)}
    return shaped(await run_watched(sandbox, given.command, **options))


def limits(sandbox: AsyncSandbox, timeout: float | None) -> RunOptions:
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
)
SHELL = Tool(
    "shell",
    "Run a command line with bash in an isolated sandbox and see what it prints. Files in the current folder are kept "
    "between calls; variables and background processes are not.",
    ShellArguments,
    Risk.HIGH,
    _run_shell,
    about=about_shell,
)
