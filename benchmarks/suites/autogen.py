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

from benchmarks.suites.suite import Difference, Suite
from fumehood.integrations.autogen import SandboxCodeExecutor

_NOBODY = 65534


class FolderOfNobody(tempfile.TemporaryDirectory[str]):
    """Blocks in a container never run as root, so that the tests' folders must belong to another user."""

    def __init__(self) -> None:
        super().__init__()
        os.chown(self.name, _NOBODY, _NOBODY)


def _is_roots_container(backend: str) -> bool:
    return backend != "native" and os.geteuid() == 0


def substitute(module: ModuleType, backend: str, left_open: ExitStack) -> None:
    places: dict[str, object] = {
        "DockerCommandLineCodeExecutor": SandboxCodeExecutor,
        "LocalCommandLineCodeExecutor": SandboxCodeExecutor,
        # Whether there is an engine is of no interest to a native sandbox.
        "docker_tests_enabled": lambda: True,
    }
    if _is_roots_container(backend):
        places["tempfile"] = SimpleNamespace(TemporaryDirectory=FolderOfNobody, gettempdir=tempfile.gettempdir)
    for name in places.keys() & vars(module).keys():
        setattr(module, name, places[name])


def prepare(backend: str) -> None:
    """The class itself, not one made of it, or it could not be loaded from what it stores."""
    if _is_roots_container(backend):
        os.chown(os.curdir, _NOBODY, _NOBODY)
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


_FOLDER = Difference(
    r"'/workspace'|DID NOT RAISE RuntimeError", "without `work_dir` there is no folder of the host's; see below"
)
_FUNCTIONS = "functions are set up by `start`, which says that they cannot be"

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
    differences={
        "test_commandline_code_executor::test_commandline_code_executor_cancellation": Difference(
            "'Cancelled' in 'Code execution was cancelled.'", "ours has the words of the executor for Docker"
        ),
        "test_docker_commandline_code_executor_extra_args": Difference(
            "OptionError: extra_hosts: a sandbox is in no network of Docker", "`extra_hosts` is refused by name"
        ),
        "test_invalid_timeout": Difference(
            "Actual message: 'timeout: a duration goes from 1ms",
            "refused in other words: less than a second is allowed",
        ),
        "test_python_identifier": Difference(
            "Actual message: \"functions_module: 'invalid-identifier' cannot", "refused in other words"
        ),
        "test_directory_not_initialized": _FOLDER,
        "test_directory_creation_cleanup": _FOLDER,
        "test_default_work_dir_is_temp": _FOLDER,
        "test_create_temp_dir": _FOLDER,
        "test_fails_for_function_incorrect_import": Difference("OptionError: functions: failed in the", _FUNCTIONS),
        "test_fails_for_function_incorrect_dep": Difference("not-a-real-package was not found", _FUNCTIONS),
    },
)
