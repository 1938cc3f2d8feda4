"""AutoGen's tests of its executors for Docker and for the host, and of what uses them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

from autogen_core.code_executor import CodeResult

from benchmarks.suites.suite import Suite
from fumehood.integrations.autogen import SandboxCodeExecutor

_NOBODY = 65534


class FolderOfNobody(tempfile.TemporaryDirectory[str]):
    """Blocks in a container never run as root, so that the tests' folders must belong to another user."""

    def __init__(self) -> None:
        super().__init__()
        os.chown(self.name, _NOBODY, _NOBODY)


def substitute(module: ModuleType, backend: str, left_open: ExitStack) -> None:
    places: dict[str, object] = {
        "DockerCommandLineCodeExecutor": SandboxCodeExecutor,
        "LocalCommandLineCodeExecutor": SandboxCodeExecutor,
        # Whether there is an engine is of no interest to a native sandbox.
        "docker_tests_enabled": lambda: True,
    }
    if backend != "native" and os.geteuid() == 0:
        places["tempfile"] = SimpleNamespace(TemporaryDirectory=FolderOfNobody, gettempdir=tempfile.gettempdir)
    for name in places.keys() & vars(module).keys():
        setattr(module, name, places[name])


def prepare(backend: str) -> None:
    """The class itself, not one made of it, or it could not be loaded from what it stores."""
    _replace("__init__", partial(_with_backend, backend))
    _replace("execute_code_blocks", _started)


def _replace(name: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    setattr(SandboxCodeExecutor, name, wrap(getattr(SandboxCodeExecutor, name)))


def _with_backend(backend: str, make: Callable[..., None]) -> Callable[..., None]:
    """AutoGen's executor for the host calls one option by another name."""

    def init(self: SandboxCodeExecutor, *args: Any, cleanup_temp_files: bool | None = None, **options: Any) -> None:
        make(self, *args, **{"backend": backend, "delete_tmp_files": cleanup_temp_files, **options})

    return init


def _started(execute: Callable[..., Awaitable[CodeResult]]) -> Callable[..., Awaitable[CodeResult]]:
    """AutoGen's executor for the host needs no start."""

    async def execute_code_blocks(self: SandboxCodeExecutor, *args: Any, **options: Any) -> CodeResult:
        await self.start()
        return await execute(self, *args, **options)

    return execute_code_blocks


_VENV = "a virtual environment of the host's for blocks, an option of the executor for the host"

SUITE = Suite(
    distribution="autogen-ext",
    folder="autogen_ext",
    files=(
        "code_executors/test_commandline_code_executor.py",
        "code_executors/test_docker_commandline_code_executor.py",
        "code_executors/test_user_defined_functions.py",
        "tools/test_python_code_executor_tool.py",
    ),
    concerns="CommandLineCodeExecutor|executor_and_temp_dir",
    substitute=substitute,
    prepare=prepare,
    not_applicable={
        "test_local_executor_with_custom_venv": _VENV,
        "test_local_executor_with_custom_venv_in_local_relative_path": _VENV,
        "test_local_executor_with_custom_uv_venv": _VENV,
        "test_local_executor_with_custom_uv_venv_in_local_relative_path": _VENV,
        "test_local_commandline_code_executor_restart": "on the host a restart does nothing, and warns of it",
        "test_ps1_script": "for Windows",
        "test_cleanup_temp_files_oserror": "it makes `Path.unlink` fail, by which only theirs removes files",
    },
    differences={},
)
