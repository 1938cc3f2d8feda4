"""smolagents' tests of its executor for Docker, and of code agents that run code."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from types import ModuleType
from typing import Any

from smolagents import CodeAgent  # pyright: ignore[reportMissingTypeStubs]

from benchmarks.suites.suite import Difference, Suite
from fumehood.integrations.smolagents import SandboxPythonExecutor

_PACKAGES = frozenset({"numpy", "pillow"})
"""Those that the tests' code imports, not only the tests' prompts."""


def stand_in(backend: str) -> type[SandboxPythonExecutor]:
    class DockerStandIn(SandboxPythonExecutor):
        def __init__(self, additional_imports: list[str], logger: object, **options: Any) -> None:
            super().__init__({"backend": backend, "environment": {"packages": additional_imports}})

        def delete(self) -> None:
            self.cleanup()

    return DockerStandIn


def code_agent(backend: str, left_open: ExitStack) -> type[CodeAgent]:
    class CodeAgentStandIn(CodeAgent):
        def create_python_executor(self) -> SandboxPythonExecutor:
            packages = sorted(_PACKAGES & set(self.additional_authorized_imports))
            executor = SandboxPythonExecutor({"backend": backend, "environment": {"packages": packages}})
            left_open.callback(executor.cleanup)
            return executor

    return CodeAgentStandIn


def substitute(module: ModuleType, backend: str, left_open: ExitStack) -> None:
    if hasattr(module, "DockerExecutor"):
        vars(module)["DockerExecutor"] = stand_in(backend)
    if hasattr(module, "CodeAgent"):
        vars(module)["CodeAgent"] = code_agent(backend, left_open)


def prepare(backend: str) -> None:
    """The archive lacks the module with the mark that leaves these tests out by default."""
    markers = ModuleType("tests.utils.markers")
    vars(markers)["require_run_all"] = lambda test: test  # pyright: ignore[reportUnknownLambdaType]
    sys.modules |= {"tests.utils": ModuleType("tests.utils"), "tests.utils.markers": markers}


_TOOL = Difference(
    "Tool validation failed for (PythonInterpreterTool|SimpleTool)",
    "smolagents itself sends no tool out of its process that needs names from outside of the tool",
)
_CONTAINER = "they look at the executor's container"

SUITE = Suite(
    distribution="smolagents",
    folder="smolagents",
    files=("test_agents.py", "test_remote_executors.py"),
    concerns=r"TestDockerExecutorIntegration|(?s:\bCodeAgent\(.*\.run\()",
    substitute=substitute,
    prepare=prepare,
    not_applicable={
        "test_initialization": _CONTAINER,
        "test_cleanup_on_deletion": _CONTAINER,
        "test_missing_import_triggers_advice_in_error_log": "the list of imports that smolagents' interpreter allows",
        "test_local_python_executor_with_custom_functions": "functions of the host's for smolagents' interpreter",
        "test_change_tools_after_init": "smolagents leaves it out itself",
    },
    differences={
        "test_fake_code_agent": _TOOL,
        "test_reset_conversations": _TOOL,
        "test_fails_max_steps": _TOOL,
        "test_tool_descriptions_get_baked_in_system_prompt": _TOOL,
        "test_code_agent_image_output": _TOOL,
        "test_errors_show_offending_line_and_error": _TOOL,
        "test_error_saves_previous_print_outputs": _TOOL,
        "test_syntax_error_show_offending_lines": _TOOL,
        "test_end_code_appending": _TOOL,
        "test_multiagents": Difference(
            "'search_agent' is a ToolCallingAgent and cannot run in a sandbox",
            "an agent as a tool runs in no sandbox; smolagents' own executors outside of its process refuse it, too",
        ),
    },
)
