"""What deepagents expect of a sandbox. The operations on files that a model has are theirs, made of these."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from deepagents.backends.protocol import (
    FILE_NOT_FOUND,
    INVALID_PATH,
    IS_DIRECTORY,
    PERMISSION_DENIED,
    ExecuteResponse,
    FileDownloadResponse,
    FileUploadResponse,
)
from deepagents.backends.sandbox import BaseSandbox

from fumehood.blocking import Sandbox
from fumehood.errors import DeniedError, UsageError
from fumehood.integrations.adapter import as_os_error, default_policy, run_command
from fumehood.policy import AnyPolicy
from fumehood.sandbox.interface import AnySandbox

T = TypeVar("T")

_CODES: dict[type[OSError], str] = {
    FileNotFoundError: FILE_NOT_FOUND,
    IsADirectoryError: IS_DIRECTORY,
    PermissionError: PERMISSION_DENIED,
}


class SandboxBackend(BaseSandbox):
    """`with SandboxBackend(policy) as backend`; or open it with `start` and end it with `close`.

    Files stay from command to command, processes do not: what a command leaves in the background ends with it. Files
    are downloaded as far as `filesystem.outputs` of the policy names them; what a model reads is output.
    """

    def __init__(self, policy: AnyPolicy | None = None) -> None:
        self._box = Sandbox(default_policy(policy), keep_tmp=True)
        self._id = f"fumehood-{secrets.token_hex(8)}"

    def start(self) -> None:
        self._box.__enter__()

    def close(self) -> None:
        self._box.__exit__(None, None, None)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def id(self) -> str:
        return self._id

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox itself, for operations that the interface of deepagents does not have."""
        return self._box

    def execute(self, command: str, *, timeout: int | str | None = None) -> ExecuteResponse:
        return self._wait(partial(_execute, command=command, timeout=timeout))

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        return self._wait(partial(_upload, files=files))

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        return self._wait(partial(_download, paths=paths))

    async def aexecute(self, command: str, *, timeout: int | str | None = None) -> ExecuteResponse:
        return await self._reach(partial(_execute, command=command, timeout=timeout))

    async def aupload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        return await self._reach(partial(_upload, files=files))

    async def adownload_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        return await self._reach(partial(_download, paths=paths))

    def _wait(self, work: Callable[[AnySandbox], Coroutine[Any, Any, T]]) -> T:
        return self._box.loop.call(partial(work, self._box.target))

    async def _reach(self, work: Callable[[AnySandbox], Coroutine[Any, Any, T]]) -> T:
        """Runs work in the loop of blocking sandboxes, without a thread that waits. Cancelling ends the work."""
        return await asyncio.wrap_future(self._box.loop.start(partial(work, self._box.target)))


async def _execute(box: AnySandbox, *, command: str, timeout: int | str | None) -> ExecuteResponse:
    # 0 is their word for no limit; here there always is the policy's.
    done = await run_command(box, command, timeout or None)
    return ExecuteResponse(done.output, done.exit_code, done.truncated)


async def _upload(box: AnySandbox, *, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
    return [
        FileUploadResponse(path, await _problem(path, box.files.write(path, data, as_program=True)))
        for path, data in files
    ]


async def _download(box: AnySandbox, *, paths: list[str]) -> list[FileDownloadResponse]:
    responses: list[FileDownloadResponse] = []
    for path in paths:
        found = FileDownloadResponse(path)
        found.error = await _problem(path, _fetch(box, found))
        responses.append(found)
    return responses


async def _fetch(box: AnySandbox, response: FileDownloadResponse) -> None:
    response.content = await box.files.read(response.path)


async def _problem(path: str, work: Coroutine[Any, Any, None]) -> str | None:
    """The code that deepagents have for this error of a file, or Fumehood's message."""
    if not path.startswith("/"):
        work.close()
        return INVALID_PATH
    try:
        await work
    except (UsageError, DeniedError) as error:
        return _CODES.get(type(as_os_error(error, path)), str(error))
    return None
