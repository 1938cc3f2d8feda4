"""AutoGen's code executor, with a sandbox that runs the blocks."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import anyio
import anyio.lowlevel
from autogen_core import CancellationToken, Component
from autogen_core.code_executor import CodeBlock, CodeExecutor

from fumehood.errors import DeniedError, UsageError
from fumehood.integrations.autogen.approvals import ApprovalFunction, BlockApprovals
from fumehood.integrations.autogen.blocks import BlockScript, BlocksReport, SandboxCodeResult, read_block
from fumehood.integrations.autogen.merge import merge
from fumehood.integrations.autogen.options import ExecutorError, OptionError, SandboxCodeExecutorConfig, read_options
from fumehood.integrations.autogen.setup import (
    Function,
    is_alive,
    make_host_folder,
    module_source,
    required_packages,
    set_up,
    share_workspace,
    stub,
)
from fumehood.policy import AnyPolicy, Policy, read_policy
from fumehood.remote.place import USUAL
from fumehood.sandbox.interface import AnySandbox, Opener


class SandboxCodeExecutor(CodeExecutor, Component[SandboxCodeExecutorConfig]):
    """Runs code blocks in a Fumehood sandbox, with the options of AutoGen's executor for Docker.

    Blocks run in order, up to the first that fails. Files stay from block to block and call to call, until `stop`.
    Without a policy nothing is allowed that an option does not ask for; options beside a policy only tighten it.
    """

    component_config_schema = SandboxCodeExecutorConfig
    component_provider_override = "fumehood.integrations.autogen.SandboxCodeExecutor"

    def __init__(
        self,
        image: str | None = None,
        container_name: str | None = None,
        *,
        policy: AnyPolicy | None = None,
        functions: Sequence[Function] = (),
        approval_func: ApprovalFunction | None = None,
        sandboxes: Opener = USUAL,
        **options: object,
    ) -> None:
        """The options are the fields of `SandboxCodeExecutorConfig` and those in `arguments`.

        `approval_func`, as AutoGen's agents take it, is asked about blocks for which the policy's `approvals` want a
        yes. Without it such a policy does not open.
        """
        given = read_policy(policy)
        stored = None if given is None else given.model_dump(mode="json", exclude_defaults=True)
        given_options = {"image": image, "container_name": container_name, "policy": stored, **options}
        self._config = read_options(given_options)
        self._functions = tuple(functions)
        self._functions_source = module_source(self._functions) if self._functions else None
        self._plan = merge(self._config, given, required_packages(self._functions))
        self._turn = anyio.Lock()
        self._calls = _Calls()
        self._opened: AnySandbox | None = None
        self._approval_func, self._opener = approval_func, sandboxes
        self._approvals: BlockApprovals | None = None
        self._lifetime = AsyncExitStack()

    @property
    def policy(self) -> Policy:
        """What is enforced: the policy and the options together."""
        return self._plan.policy

    @property
    def sandbox(self) -> AnySandbox:
        """The open sandbox, to bring files in and out."""
        if self._opened is None:
            raise ExecutorError(
                "Container is not running. Must first be started with either start or a context manager."
            )
        return self._opened

    @property
    def timeout(self) -> float:
        return self.policy.resources.timeout

    @property
    def work_dir(self) -> Path:
        """The folder of the host in which blocks work; if there is none, the folder of the sandbox."""
        return Path(self._plan.host_folder or self._plan.folder)

    @property
    def bind_dir(self) -> Path:
        """The same as `work_dir`."""
        return self.work_dir

    @property
    def functions_module(self) -> str:
        return self._config.functions_module

    def format_functions_for_prompt(self) -> str:
        """The text for a prompt: which functions there are, and how to import them."""
        names = "\n\n".join(stub(function) for function in self._functions)
        return f"These functions can be imported from the module `{self.functions_module}`:\n\n{names}"

    async def start(self) -> None:
        async with self._turn:
            if self._opened is None:
                await self._open()

    async def stop(self) -> None:
        """End all runs and remove the sandbox; only the files of a work_dir stay."""
        async with self._turn:
            await self._close()

    async def restart(self) -> None:
        """End all runs and prepare anew. Files stay, unless the sandbox itself was lost."""
        async with self._turn:
            box = self.sandbox
            await self._calls.end()
            if await is_alive(box):
                await self._set_up(box)
            else:
                await self._close()
                await self._open()

    async def execute_code_blocks(
        self, code_blocks: list[CodeBlock], cancellation_token: CancellationToken
    ) -> SandboxCodeResult:
        """When the token cancels, the run is ended with all that it started, and the result says so."""
        if not code_blocks:
            raise ExecutorError("No code blocks to execute. Give at least one")
        box, report = self.sandbox, BlocksReport()
        with self._calls.begin(cancellation_token) as scope:
            await self._run_blocks(box, code_blocks, report)
        if scope.cancelled_caught:
            report.cancel()
        return report.conclude()

    async def _run_blocks(self, box: AnySandbox, blocks: Sequence[CodeBlock], report: BlocksReport) -> None:
        await anyio.lowlevel.checkpoint()  # a token that was cancelled before lets nothing begin
        for block in blocks:
            try:
                await self._run_block(box, read_block(block, self._plan.folder), report)
            except (UsageError, DeniedError) as error:
                report.refuse(error)
            if report.has_failed:
                return

    async def _run_block(self, box: AnySandbox, script: BlockScript, report: BlocksReport) -> None:
        if self._approvals is not None:
            script = await self._approvals.approve(script)
        await box.files.write(script.path, script.source)
        report.files.append(self._host_path(script.path))
        try:
            result = await box.run(
                script.source,
                language=script.language.name,
                name=script.run_name,
                cwd=self._plan.folder,
                env=self._plan.environment,
            )
        finally:
            if self._config.delete_tmp_files and not script.is_named:
                await _remove(box, script.path)
        report.add(result)
        report.note(await share_workspace(box, self._plan))

    def _host_path(self, path: str) -> str:
        host, folder = self._plan.host_folder, self._plan.folder
        return path if host is None else os.path.join(host, os.path.relpath(path, folder))

    async def _open(self) -> None:
        if self._plan.host_folder is not None:
            make_host_folder(self._plan.host_folder)
        async with AsyncExitStack() as stack:
            function = self._approval_func
            box = await stack.enter_async_context(self._opener.sandbox(self.policy, gated=function is not None))
            self._approvals = None if function is None else BlockApprovals(box, function)
            await self._set_up(box)
            self._opened, self._lifetime = box, stack.pop_all()

    async def _set_up(self, box: AnySandbox) -> None:
        source = self._functions_source
        modules = {} if source is None else {f"{self.functions_module}.py": source}
        await set_up(box, self._plan, modules, self._config.init_command)

    async def _close(self) -> None:
        self._opened = None  # from here on, no call begins
        await self._calls.end()
        await self._lifetime.aclose()

    def _to_config(self) -> SandboxCodeExecutorConfig:
        if self._functions:
            raise OptionError("functions", "cannot be stored; leave them out of an executor that is to be dumped")
        if self._approval_func is not None:
            raise OptionError("approval_func", "cannot be stored; leave it out of an executor that is to be dumped")
        return self._config

    @classmethod
    def _from_config(cls, config: SandboxCodeExecutorConfig) -> SandboxCodeExecutor:
        return cls(**config.model_dump(exclude_none=True))


async def _remove(box: AnySandbox, path: str) -> None:
    """Removes a file, also when cancelled. A program may have removed it itself."""
    with anyio.CancelScope(shield=True), suppress(UsageError):
        await box.files.remove(path)


class _Calls:
    """The calls under way, so that each of them can be ended from outside."""

    def __init__(self) -> None:
        self._under_way: dict[anyio.CancelScope, anyio.Event] = {}

    @contextmanager
    def begin(self, token: CancellationToken) -> Iterator[anyio.CancelScope]:
        """Its scope is cancelled by the token, from whatever thread, and by `end`."""
        over = anyio.Event()
        with anyio.CancelScope() as scope:
            self._under_way[scope] = over
            # Not `link_future`: a token may be cancelled in a thread, where a future must not be touched.
            token.add_callback(partial(_cancel_soon, asyncio.get_running_loop(), scope))
            try:
                yield scope
            finally:
                del self._under_way[scope]
                over.set()

    async def end(self) -> None:
        """All of them, and wait until they have ended."""
        for scope, over in [*self._under_way.items()]:
            scope.cancel()
            await over.wait()


def _cancel_soon(loop: asyncio.AbstractEventLoop, scope: anyio.CancelScope) -> None:
    with suppress(RuntimeError):  # a token outlives its calls, and perhaps their loop; then there is nothing to cancel
        loop.call_soon_threadsafe(scope.cancel)
