"""smolagents' tests of its executor for Docker, and of code agents that run code."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from types import ModuleType
from typing import Any

from smolagents import CodeAgent  # pyright: ignore[reportMissingTypeStubs]

from benchmarks.suites.suite import Suite
from fumehood.integrations.smolagents import SandboxPythonExecutor


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
            executor = SandboxPythonExecutor({"backend": backend})
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


SUITE = Suite(
    distribution="smolagents",
    folder="smolagents",
    files=("test_agents.py", "test_remote_executors.py"),
    concerns=r"TestDockerExecutorIntegration|(?s:\bCodeAgent\(.*\.run\()",
    substitute=substitute,
    prepare=prepare,
    not_applicable={},
    differences={},
)
