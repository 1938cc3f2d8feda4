"""Workspaces of Pydantic AI: commands and files in a sandbox, which a later run can use again."""

from __future__ import annotations

import math
import posixpath
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self

from pydantic_ai.workspaces import (
    CommandResult,
    FileEntry,
    WorkspaceCommand,
    WorkspaceOutputLimitError,
    WorkspaceRef,
    WorkspaceTimeoutError,
    WorkspaceUnavailableError,
)

from fumehood.errors import DeniedError, FumehoodError, SandboxError, UsageError
from fumehood.integrations.adapter import default_policy, os_errors, shortened_timeout, with_reason
from fumehood.integrations.pydantic_ai.lifecycle import WorkspaceSandbox, gone
from fumehood.policy import AnyPolicy, Policy, Seconds, format_size
from fumehood.policy.paths import WORKSPACE, is_inside
from fumehood.remote.place import USUAL
from fumehood.results import Cause, RunResult, Status
from fumehood.sandbox.command_check import DENIED_EXIT_CODE
from fumehood.sandbox.files import FileEntry as Entry
from fumehood.sandbox.files import FileKind
from fumehood.sandbox.interface import AnySandbox, Opener
from fumehood.sandbox.request import RunOptions
from fumehood.tools.source import apart

_RESOLVE = "import os, sys; sys.stdout.buffer.write(os.fsencode(os.path.realpath(sys.argv[1])))"


class SandboxWorkspaceBackend:
    """Made by `SandboxWorkspaces.backend`. The sandbox opens when something is first done in it.

    Files stay from command to command, processes do not: what a command leaves in the background ends with it. Files
    are read as far as `filesystem.outputs` of the policy names them.
    """

    def __init__(self, sandbox: WorkspaceSandbox) -> None:
        self._sandbox = sandbox

    @property
    def ref(self) -> WorkspaceRef | None:
        return self._sandbox.ref

    async def working_dir(self) -> str:
        await self._sandbox.open()
        return WORKSPACE

    async def run(
        self,
        command: WorkspaceCommand,
        *,
        shell: bool = False,
        env: Mapping[str, str] | None = None,
        timeout: Seconds | None = None,
    ) -> CommandResult:
        _check_command(command, shell, timeout)
        async with self._using() as box:
            options: RunOptions = {"env": env, "timeout": shortened_timeout(box.policy, timeout)}
            options |= {"language": "bash"} if isinstance(command, str) else {"argv": list(command)}
            try:
                result = await box.run(command if isinstance(command, str) else None, **options)
            except (UsageError, DeniedError) as error:
                if self._sandbox.is_destroyed:
                    raise gone(self.ref) from error
                return CommandResult(exit_code=DENIED_EXIT_CODE, stdout="", stderr=f"{error}\n")
            _check(result, box.policy)
        return CommandResult(
            exit_code=result.exit_code, stdout=result.stdout, stderr=with_reason(result.stderr, result)
        )

    async def read_bytes(self, path: str) -> bytes:
        async with self._using(path) as box:
            entry = await box.files.stat(path, follow=True)
            if entry.kind is FileKind.FOLDER:
                raise IsADirectoryError(path)
            return await box.files.read(path)

    async def write_bytes(self, path: str, data: bytes) -> None:
        async with self._using(path) as box:
            await box.files.write(path, data, as_program=True)

    async def stat(self, path: str) -> FileEntry:
        async with self._using(path) as box:
            return _entry(path, await box.files.stat(path, follow=True))

    async def list_dir(self, path: str) -> Sequence[FileEntry]:
        async with self._using(path) as box:
            return [
                await _followed(box, posixpath.join(path, entry.name), entry) for entry in await box.files.list(path)
            ]

    async def make_dir(self, path: str) -> None:
        async with self._using(path) as box:
            await box.files.mkdir(path)

    async def remove(self, path: str) -> None:
        if is_inside(WORKSPACE, path):
            raise ValueError(f"{path!r} is the working directory or holds it, and always exists")
        async with self._using(path) as box:
            await box.files.remove(path, recursive=True)

    async def exists(self, path: str) -> bool:
        try:
            await self.stat(path)
        except FileNotFoundError:
            return False
        except OSError:
            # Something is there, though it leads nowhere or to where we do not look.
            return True
        return True

    async def realpath(self, path: str) -> str:
        async with self._using(path) as box:
            result = await box.run(apart(_RESOLVE), args=[path])
            if not result.ok:
                raise OSError(f"{path!r} cannot be resolved in the sandbox: {result.detail or result.stderr}")
            return result.stdout_bytes.decode("utf-8", "surrogateescape")

    @asynccontextmanager
    async def _using(self, path: str = "") -> AsyncIterator[AnySandbox]:
        """The open sandbox. A failure of the sandbox is WorkspaceUnavailableError, one of a file an OSError."""
        box = await self._sandbox.open()
        try:
            with os_errors(path):
                yield box
        except SandboxError as error:
            raise WorkspaceUnavailableError(str(error)) from error
        except OSError as error:
            if self._sandbox.is_destroyed and isinstance(error.__cause__, FumehoodError):
                raise gone(self.ref) from error
            raise


class SandboxWorkspaces:
    """`async with SandboxWorkspaces(policy) as workspaces`: at the end every sandbox of them is closed.

    A reference is valid in this object only: another process has no such sandbox.
    """

    def __init__(self, policy: AnyPolicy | None = None, *, sandboxes: Opener = USUAL) -> None:
        self._policy, self._opener = default_policy(policy), sandboxes
        self._sandboxes: list[WorkspaceSandbox] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        while self._sandboxes:
            await self._sandboxes.pop().destroy()

    def backend(self, ref: WorkspaceRef | None = None) -> SandboxWorkspaceBackend:
        """The backend of a new sandbox, which opens when it is first used, or of an earlier run's sandbox."""
        if ref is not None:
            found = next((sandbox for sandbox in self._sandboxes if sandbox.ref == ref), None)
            return SandboxWorkspaceBackend(found or WorkspaceSandbox(self._policy, self._opener, lost=ref))
        sandbox = WorkspaceSandbox(self._policy, self._opener)
        self._sandboxes.append(sandbox)
        return SandboxWorkspaceBackend(sandbox)

    async def destroy(self, ref: WorkspaceRef) -> None:
        """Close the sandbox now, with all that runs in it."""
        found = [sandbox for sandbox in self._sandboxes if sandbox.ref == ref]
        if not found:
            raise gone(ref)
        self._sandboxes.remove(found[0])
        await found[0].destroy()


async def _followed(box: AnySandbox, path: str, entry: Entry) -> FileEntry:
    """A link as what it leads to; one that leads nowhere, or out of the workspace, is not a folder."""
    if entry.kind is FileKind.LINK:
        try:
            entry = await box.files.stat(path, follow=True)
        except (UsageError, DeniedError):
            return FileEntry(name=entry.name, path=path, is_dir=False, size=None)
    return _entry(path, entry)


def _entry(path: str, entry: Entry) -> FileEntry:
    size = entry.size if entry.kind is FileKind.FILE else None
    return FileEntry(name=posixpath.basename(path), path=path, is_dir=entry.kind is FileKind.FOLDER, size=size)


def _check_command(command: WorkspaceCommand, shell: bool, timeout: Seconds | None) -> None:
    if isinstance(command, str) != shell:
        raise TypeError("a text is for shell=True, and a list of words for shell=False")
    if isinstance(timeout, float | int) and not (math.isfinite(timeout) and timeout > 0):
        raise ValueError(f"timeout {timeout!r} must be a number of seconds above zero")


def _check(result: RunResult, policy: Policy) -> None:
    """Raise what Pydantic AI expects as an exception."""
    if result.cause is Cause.LOST:
        raise WorkspaceUnavailableError(result.detail)
    if result.status is Status.TIMEOUT:
        raise WorkspaceTimeoutError(result.detail, stdout=result.stdout, stderr=result.stderr)
    if result.truncated:
        limit = policy.resources.output
        message = f"the command wrote more than {format_size(limit)}; write to a file, or raise resources.output"
        raise WorkspaceOutputLimitError(message, limit=limit, stdout=result.stdout, stderr=result.stderr)
