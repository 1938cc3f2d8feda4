"""The framework's shell executor, and a sandbox behind it."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Literal, Self

import anyio
from agent_framework import FunctionTool, tool
from agent_framework_tools.shell import ShellCommandError, ShellExecutionError, ShellMode, ShellResult

from fumehood.errors import DeniedError, SandboxError, UsageError
from fumehood.integrations.adapter import AnyPolicy, default_policy, shortened_timeout, with_reason
from fumehood.integrations.agent_framework.kept_shell import KeptShell
from fumehood.policy import Policy, Seconds
from fumehood.remote.place import USUAL
from fumehood.results import Cause, Status
from fumehood.sandbox.interface import AnySandbox, Opener

_KIND = "shell"
_BEGINNING = "Run a command line with bash in an isolated sandbox and see what it prints. "
_DESCRIPTIONS: dict[ShellMode, str] = {
    "stateless": f"{_BEGINNING}Files are kept between calls; variables, the folder and background processes are not.",
    "persistent": f"{_BEGINNING}Files, variables, the folder and background jobs are kept between calls.",
}


class SandboxShell:
    """A `ShellExecutor`. What the policy denies is a `ShellCommandError`, as the framework's own policies have it.

    In the mode `stateless` every command is a fresh process, which ends with all that it started; in `persistent` one
    shell executes all of them, and keeps its folder, variables and jobs.
    """

    def __init__(
        self,
        policy: AnyPolicy | None = None,
        *,
        mode: ShellMode = "stateless",
        approval_mode: Literal["always_require", "never_require"] = "never_require",
        sandboxes: Opener = USUAL,
    ) -> None:
        """The sandbox is the boundary; `approval_mode` has a person approve each command as well."""
        self._policy, self._opener = default_policy(policy), sandboxes
        _check_mode(mode, self._policy)
        self._mode: ShellMode = mode
        self._kept: KeptShell | None = None
        self._approval_mode: Literal["always_require", "never_require"] = approval_mode
        self._turn = anyio.Lock()
        self._sandbox: AnySandbox | None = None
        self._lifetime = AsyncExitStack()

    @property
    def sandbox(self) -> AnySandbox:
        """The open sandbox, to bring files in and out."""
        if self._sandbox is None:
            raise UsageError("the shell is not open; use it inside `async with shell:`, or start it first")
        return self._sandbox

    async def start(self) -> None:
        async with self._turn:
            if self._sandbox is None:
                self._sandbox = await self._lifetime.enter_async_context(
                    self._opener.sandbox(self._policy, keep_tmp=True)
                )
                self._kept = KeptShell(self._sandbox) if self._mode == "persistent" else None

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
        limit = shortened_timeout(self.sandbox.policy, timeout)
        try:
            if self._kept is not None:
                return await self._kept.run(command, limit or self._policy.resources.timeout)
            return await self._run_fresh(command, limit)
        except (UsageError, DeniedError) as error:
            raise ShellCommandError(str(error)) from error
        except SandboxError as error:
            raise ShellExecutionError(str(error)) from error

    async def _run_fresh(self, command: str, timeout: float | None) -> ShellResult:
        result = await self.sandbox.run(command, language="bash", timeout=timeout)
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

        words = description or _DESCRIPTIONS[self._mode]
        return tool(func=run_shell, name=name, description=words, approval_mode=self._approval_mode, kind=_KIND)


def _check_mode(mode: ShellMode, policy: Policy) -> None:
    if mode not in _DESCRIPTIONS:
        raise UsageError(f"mode is {mode!r}, and must be one of {', '.join(_DESCRIPTIONS)}")
    if mode == "persistent" and not policy.commands.is_open:
        raise UsageError(
            "the policy has `commands`, and a line in a shell that keeps functions and variables cannot be judged by "
            "itself; use mode='stateless', or leave `commands` out of the policy"
        )
