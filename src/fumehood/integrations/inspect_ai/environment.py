"""Inspect's interface, and a sandbox behind it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any, Literal, overload

import anyio
from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxEnvironment,
    SandboxEnvironmentConfigType,
    SandboxEnvironmentLimits,
    SandboxUnavailableError,
    SandboxUserUnsupportedError,
    sandboxenv,
)
from pydantic import BaseModel

from fumehood.errors import DeniedError, SandboxError, UsageError
from fumehood.integrations.adapter import default_policy, os_errors, shortened_timeout, with_reason
from fumehood.integrations.inspect_ai.tool_server import ToolServer
from fumehood.policy import Policy, format_size
from fumehood.remote.place import USUAL
from fumehood.results import Cause, RunResult, Status
from fumehood.sandbox.files import FileKind
from fumehood.sandbox.interface import AnySandbox

_SANDBOX_USERS = ("sandbox", "65534")
_CANNOT_EXECUTE = 126


class FumehoodSandboxEnvironment(SandboxEnvironment):
    """One sandbox for each sample. The configuration is a policy: the path of its file, or a `Policy`.

    Files stay from command to command, processes do not: what a command leaves in the background ends with it. The
    server that Inspect brings for its own tools is the exception.
    """

    def __init__(self, sandbox: AnySandbox, lifetime: AsyncExitStack) -> None:
        super().__init__()
        self.sandbox = sandbox
        """The sandbox itself, for operations that Inspect's interface does not have."""
        self._lifetime = lifetime
        self._tool_server = ToolServer(sandbox)
        self._is_over = False

    @classmethod
    def config_files(cls) -> list[str]:
        return ["fumehood.yaml"]

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        return Policy(**config)

    @classmethod
    async def task_init(cls, task_name: str, config: SandboxEnvironmentConfigType | None) -> None:
        """Refuse a policy that is not valid before the first sample."""
        _read_config(config)

    @classmethod
    async def sample_init(
        cls, task_name: str, config: SandboxEnvironmentConfigType | None, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        async with AsyncExitStack() as stack:
            box = await stack.enter_async_context(USUAL.sandbox(_read_config(config), keep_tmp=True))
            return {"default": cls(box, stack.pop_all())}

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        with anyio.CancelScope(shield=True):
            for environment in environments.values():
                await environment.as_type(FumehoodSandboxEnvironment)._close()

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | str | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """A command that ran into its time limit is not tried again: it may have done half of its work."""
        _check_user(user)
        box = self._open_sandbox()
        try:
            with _failing_as_unavailable():
                if self._tool_server.is_wanted(cmd):
                    return _started(await self._tool_server.start())
                await self._tool_server.revive(cmd)
                result = await box.run(
                    argv=cmd,
                    stdin=input.encode() if isinstance(input, str) else input,
                    cwd=cwd or "",
                    env=env,
                    timeout=shortened_timeout(box.policy, timeout),
                )
        except (UsageError, DeniedError) as error:
            return ExecResult(success=False, returncode=_CANNOT_EXECUTE, stdout="", stderr=f"{error}\n")
        _check(result, box.policy)
        if _looks_unexecutable(result, cmd) and not await _is_executable(box, cmd[0], cwd or ""):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), cmd[0])
        return ExecResult(result.ok, result.exit_code, result.stdout, with_reason(result.stderr, result))

    async def write_file(self, file: str, contents: str | bytes) -> None:
        box = self._open_sandbox()
        with os_errors(file), _failing_as_unavailable():
            await box.files.write(file, contents, as_program=True)

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        """Reads files that `filesystem.outputs` of the policy names."""
        box, limit = self._open_sandbox(), SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
        with os_errors(file), _failing_as_unavailable():
            entry = await box.files.stat(file, follow=True)
            if entry.kind is FileKind.FOLDER:
                raise IsADirectoryError(f"Is a directory: {file!r}")
            if entry.size > limit:
                raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)
            data = await box.files.read(file, max_bytes=limit)
        return data.decode() if text else data

    def _open_sandbox(self) -> AnySandbox:
        if self._is_over:
            raise SandboxUnavailableError("the sample is over, and its sandbox is closed")
        return self.sandbox

    async def _close(self) -> None:
        self._is_over = True
        await self._lifetime.aclose()


sandboxenv(name="fumehood")(FumehoodSandboxEnvironment)


def _read_config(config: SandboxEnvironmentConfigType | None) -> Policy:
    if isinstance(config, BaseModel) and not isinstance(config, Policy):
        raise UsageError(f"the sandbox fumehood is configured by a policy, not by a {type(config).__name__}")
    return default_policy(config)


def _check_user(user: str | None) -> None:
    if user is not None and user not in _SANDBOX_USERS:
        raise SandboxUserUnsupportedError(
            f"commands run as the sandbox's own user, who has no privileges, and never as {user!r}; leave `user` out"
        )


@contextmanager
def _failing_as_unavailable() -> Iterator[None]:
    try:
        yield
    except SandboxError as error:
        raise SandboxUnavailableError(str(error)) from error


def _check(result: RunResult, policy: Policy) -> None:
    """Raise what Inspect expects as an exception."""
    if result.cause is Cause.LOST:
        raise SandboxUnavailableError(result.detail)
    if result.status is Status.TIMEOUT:
        raise TimeoutError(result.detail)
    if result.truncated:
        raise OutputLimitExceededError(format_size(policy.resources.output), result.stdout)
    limit = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
    if max(len(result.stdout_bytes), len(result.stderr_bytes)) > limit:
        raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR, result.stdout[:limit])


def _looks_unexecutable(result: RunResult, cmd: list[str]) -> bool:
    return result.exit_code == _CANNOT_EXECUTE and result.stderr == f"{cmd[0]}: {os.strerror(errno.EACCES)}\n"


async def _is_executable(box: AnySandbox, path: str, cwd: str) -> bool:
    """Checked separately: a program that did run can print and return the same."""
    test = '[ ! -d "$1" ] && { [ -x "$1" ] || [ "${1#*/}" = "$1" ]; }'
    return (await box.run(argv=["sh", "-c", test, "sh", path], cwd=cwd)).ok


def _started(failure: RunResult | None) -> ExecResult[str]:
    if failure is None:
        return ExecResult(True, 0, "", "")
    return ExecResult(False, failure.exit_code or 1, failure.stdout, with_reason(failure.stderr, failure))
