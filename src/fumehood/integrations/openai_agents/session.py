"""The SDK's interface to a session, and a sandbox behind it."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Literal

import anyio
from agents.sandbox.errors import (
    ExecTimeoutError,
    ExecTransportError,
    WorkspaceArchiveReadError,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
)
from agents.sandbox.session import SandboxSessionState
from agents.sandbox.session.base_sandbox_session import BaseSandboxSession
from agents.sandbox.session.workspace_payloads import coerce_write_payload
from agents.sandbox.types import ExecResult, User

from fumehood.errors import DeniedError, FumehoodError, SandboxError, UsageError
from fumehood.integrations.file_errors import as_os_error
from fumehood.integrations.openai_agents import archives
from fumehood.integrations.openai_agents.requested import check_manifest, refuse_user
from fumehood.integrations.output import with_reason
from fumehood.integrations.policies import shortened_timeout
from fumehood.policy import Policy, Seconds
from fumehood.results import Cause, Status
from fumehood.sandbox.async_sandbox import AsyncSandbox
from fumehood.sandbox.command_check import DENIED_EXIT_CODE


class FumehoodSandboxSessionState(SandboxSessionState):
    """Has no policy: stored state must not decide what is allowed."""

    # The SDK finds the class by this literal.
    type: Literal["fumehood"] = "fumehood"  # pyright: ignore[reportIncompatibleVariableOverride]


class FumehoodSandboxSession(BaseSandboxSession):
    """Made by `FumehoodSandboxClient`. Its sandbox is open from `start` to `shutdown`.

    Files stay from command to command, processes do not: what a command leaves in the background ends with it.
    """

    def __init__(self, state: FumehoodSandboxSessionState, policy: Policy) -> None:
        check_manifest(state.manifest)
        self.state = state
        self._policy = policy
        self._sandbox: AsyncSandbox | None = None
        self._lifetime = AsyncExitStack()

    @property
    def sandbox(self) -> AsyncSandbox:
        if self._sandbox is None:
            raise UsageError("the session is not running; use it inside `async with session:`, or start it first")
        return self._sandbox

    async def _ensure_backend_started(self) -> None:
        if self._sandbox is None:
            self._sandbox = await self._lifetime.enter_async_context(AsyncSandbox(self._policy, keep_tmp=True))

    async def _prepare_backend_workspace(self) -> None:
        await self.sandbox.files.mkdir(self.state.manifest.root)

    async def _after_start_failed(self) -> None:
        await self._shutdown_backend()

    async def _shutdown_backend(self) -> None:
        self._sandbox = None
        with anyio.CancelScope(shield=True):
            await self._lifetime.aclose()

    async def running(self) -> bool:
        return self._sandbox is not None

    def _prepare_exec_command(
        self, *command: str | Path, shell: bool | list[str], user: str | User | None
    ) -> list[str]:
        refuse_user(user)
        # Not a login shell: there is no profile that it could read.
        return super()._prepare_exec_command(*command, shell=["sh", "-c"] if shell is True else shell, user=None)

    async def _exec_internal(self, *command: str | Path, timeout: Seconds | None = None) -> ExecResult:
        box, argv = self.sandbox, [str(word) for word in command]
        limit = shortened_timeout(box.policy, timeout)
        try:
            result = await box.run(
                argv=argv,
                env=await self.state.manifest.environment.resolve(),
                cwd=self.state.manifest.root,
                timeout=limit,
            )
        except SandboxError as error:
            raise ExecTransportError(command=argv, cause=error, message=str(error)) from error
        except (UsageError, DeniedError) as error:
            return ExecResult(stdout=b"", stderr=f"{error}\n".encode(), exit_code=DENIED_EXIT_CODE)
        if result.cause is Cause.LOST:
            raise ExecTransportError(command=argv, message=result.detail)
        if result.status is Status.TIMEOUT:
            raise ExecTimeoutError(command=argv, timeout_s=limit, context={"reason": result.detail})
        stderr = with_reason(result.stderr, result).encode() if result.detail else result.stderr_bytes
        return ExecResult(stdout=result.stdout_bytes, stderr=stderr, exit_code=result.exit_code)

    async def read(self, path: Path, *, user: str | User | None = None) -> io.IOBase:
        """Reads files that `filesystem.outputs` of the policy names."""
        refuse_user(user)
        place = self.normalize_path(path)
        with _reading(place):
            return io.BytesIO(await self.sandbox.files.read(place.as_posix()))

    async def write(self, path: Path, data: io.IOBase, *, user: str | User | None = None) -> None:
        refuse_user(user)
        place = self.normalize_path(path, for_write=True)
        content = coerce_write_payload(path=place, data=data).stream.read()
        with _writing(place):
            await self.sandbox.files.write(place.as_posix(), content, as_program=True)

    async def mkdir(self, path: Path | str, *, parents: bool = False, user: str | User | None = None) -> None:
        """Not by a command, which the policy may not allow: no session could start."""
        refuse_user(user)
        place = self.normalize_path(path, for_write=True)
        with _writing(place):
            await self.sandbox.files.mkdir(place.as_posix(), parents=parents)

    async def persist_workspace(self) -> io.IOBase:
        root = self.state.manifest.root
        skip = [path.as_posix() for path in self._persist_workspace_skip_relpaths()]
        with _reading(Path(root)):
            return await archives.pack(self.sandbox, root, skip)

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        root = self.state.manifest.root
        content = coerce_write_payload(path=Path(root), data=data).stream.read()
        with _writing(Path(root)):
            await archives.unpack(self.sandbox, root, content)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except FumehoodError as error:
        if isinstance(as_os_error(error, path.as_posix()), FileNotFoundError):
            raise WorkspaceReadNotFoundError(path=path, cause=error) from error
        raise WorkspaceArchiveReadError(path=path, context={"reason": str(error)}, cause=error) from error


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except FumehoodError as error:
        raise WorkspaceArchiveWriteError(path=path, context={"reason": str(error)}, cause=error) from error
