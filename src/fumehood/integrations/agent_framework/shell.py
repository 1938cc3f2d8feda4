"""The framework's shell executor, and a sandbox behind it."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Literal, Self

import anyio
from agent_framework import FunctionTool, tool
from agent_framework_tools.shell import ShellCommandError, ShellExecutionError, ShellResult

from fumehood.errors import DeniedError, SandboxError, UsageError
from fumehood.integrations.adapter import AnyPolicy, default_policy, shortened_timeout, with_reason
from fumehood.policy import Seconds
from fumehood.results import Cause, Status
from fumehood.sandbox.async_sandbox import AsyncSandbox

_KIND = "shell"
_DESCRIPTION = (
    "Run a command line with bash in an isolated sandbox and see what it prints. Files are kept between calls; "
    "variables, the current folder and background processes are not."
)


class SandboxShell:
    """A `ShellExecutor`: every command is a fresh process, which ends with all that it started.

    What the policy denies is a `ShellCommandError`, as the framework's own policies have it.
    """

    def __init__(
        self,
        policy: AnyPolicy | None = None,
        *,
        approval_mode: Literal["always_require", "never_require"] = "never_require",
    ) -> None:
        """The sandbox is the boundary; `approval_mode` has a person approve each command as well."""
        self._policy = default_policy(policy)
        self._approval_mode: Literal["always_require", "never_require"] = approval_mode
        self._turn = anyio.Lock()
        self._sandbox: AsyncSandbox | None = None
        self._lifetime = AsyncExitStack()

    @property
    def sandbox(self) -> AsyncSandbox:
        """The open sandbox, to bring files in and out."""
        if self._sandbox is None:
            raise UsageError("the shell is not open; use it inside `async with shell:`, or start it first")
        return self._sandbox

    async def start(self) -> None:
        async with self._turn:
            if self._sandbox is None:
                self._sandbox = await self._lifetime.enter_async_context(AsyncSandbox(self._policy, keep_tmp=True))

    async def close(self) -> None:
        with anyio.CancelScope(shield=True):
            async with self._turn:
                self._sandbox = None
                await self._lifetime.aclose()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def run(self, command: str, *, timeout: Seconds | None = None) -> ShellResult:
        await self.start()
        box = self.sandbox
        try:
            result = await box.run(command, language="bash", timeout=shortened_timeout(box.policy, timeout))
        except (UsageError, DeniedError) as error:
            raise ShellCommandError(str(error)) from error
        except SandboxError as error:
            raise ShellExecutionError(str(error)) from error
        if result.status is Status.DENIED:
            raise ShellCommandError(f"denied by the policy: {result.detail}")
        if result.cause is Cause.LOST:
            raise ShellExecutionError(result.detail)
        return ShellResult(
            stdout=result.stdout,
            stderr=with_reason(result.stderr, result),
            exit_code=result.exit_code,
            duration_ms=round(result.duration_ms),
            truncated=result.truncated,
            timed_out=result.status is Status.TIMEOUT,
        )

    def as_function(self, *, name: str = "run_shell", description: str | None = None) -> FunctionTool:
        """A function tool for an agent; clients that have a shell tool of their own take it too."""

        async def run_shell(command: str) -> str:
            try:
                return (await self.run(command)).format_for_model()
            except ShellCommandError as error:
                return str(error)

        words = description or _DESCRIPTION
        return tool(func=run_shell, name=name, description=words, approval_mode=self._approval_mode, kind=_KIND)
