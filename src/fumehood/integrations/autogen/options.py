"""The options of an executor as plain data: AutoGen stores them with a team and makes the executor from them again.

The options that describe a container stand beside these fields, under their own names; `arguments` knows them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import cast

from pydantic import BaseModel, ConfigDict, ValidationError

from fumehood.errors import UsageError


class ExecutorError(UsageError, ValueError):
    """The executor was used in a way that is not valid. A ValueError too, as callers of AutoGen's executors expect."""


class OptionError(ExecutorError):
    """An option cannot be enforced, or contradicts another one or the policy. `option` is its name."""

    def __init__(self, option: str, reason: str) -> None:
        super().__init__(f"{option}: {reason}")
        self.option, self.reason = option, reason


class SandboxCodeExecutorConfig(BaseModel):
    """The names are those of AutoGen's executor for Docker; `policy` and `backend` are ours."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    policy: dict[str, object] | None = None
    backend: str | None = None
    image: str | None = None
    container_name: str | None = None
    """The policy's name in reports; there is no container to find by it."""
    timeout: float | str | None = None
    """The timeout of each block, in seconds or as policies spell it ("5s"); by default the policy's, or 60 seconds."""
    work_dir: str | None = None
    """A folder of the host that the code works in and may change; below /workspace, a folder of the sandbox."""
    bind_dir: str | None = None
    """Another name for the folder of the host."""
    functions_module: str = "functions"
    init_command: str | None = None
    """A command line for the shell, run once whenever the executor starts."""
    delete_tmp_files: bool = False
    """Whether the files of blocks that name none are removed."""

    @property
    def container(self) -> Mapping[str, object]:
        return self.model_extra or {}


def read_options(options: Mapping[str, object]) -> SandboxCodeExecutorConfig:
    """Options that are None count as not given."""
    given = {name: plain(value) for name, value in options.items() if value is not None}
    try:
        config = SandboxCodeExecutorConfig.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        raise OptionError(str(first["loc"][0]), first["msg"]) from None
    if not config.functions_module.isidentifier():
        raise OptionError("functions_module", f"{config.functions_module!r} cannot be the name of a Python module")
    return config


def plain(value: object) -> object:
    """Paths as text and collections as lists and dicts, all the way down: what JSON can hold."""
    if isinstance(value, os.PathLike):
        return os.fspath(cast("os.PathLike[str]", value))
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in cast("Mapping[object, object]", value).items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in cast("Iterable[object]", value)]
    return value
