"""The SDK's interface to a session, and a sandbox behind it.

What a manifest requests and a sandbox does not have is refused by name.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Literal

import anyio
from agents.sandbox import Manifest
from agents.sandbox.errors import (
    ExecTimeoutError,
    ExecTransportError,
    WorkspaceArchiveReadError,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
)
from agents.sandbox.session import SandboxSessionState
from agents.sandbox.session.base_sandbox_session import BaseSandboxSession
from agents.sandbox.session.pty_types import PtyExecUpdate
from agents.sandbox.session.workspace_payloads import coerce_write_payload
from agents.sandbox.types import ExecResult, User

from fumehood.errors import DeniedError, FumehoodError, SandboxError, UsageError
from fumehood.integrations.adapter import as_os_error, shortened_timeout, with_reason
from fumehood.integrations.openai_agents.processes import SessionProcesses
from fumehood.integrations.openai_agents.workspace_archive import pack, unpack
from fumehood.policy import Policy, Seconds
from fumehood.policy.paths import WORKSPACE, is_inside
from fumehood.remote.place import USUAL
from fumehood.results import Cause, Status
from fumehood.sandbox.command_check import DENIED_EXIT_CODE
from fumehood.sandbox.interface import AnySandbox, Opener


def check_manifest(manifest: Manifest) -> None:
    if not is_inside(manifest.root, WORKSPACE):
        raise UsageError(f"manifest.root {manifest.root!r} is not in {WORKSPACE}, where a sandbox's files are")
    if manifest.users or manifest.groups:
        raise UsageError("manifest.users and groups are not supported: a sandbox has one user, without privileges")
    if manifest.extra_path_grants:
        path = manifest.extra_path_grants[0].path
        raise UsageError(f"manifest.extra_path_grants: {path!r} has to be in filesystem.mounts of the policy")
    if manifest.mount_targets():
        path = manifest.mount_targets()[0][1]
        raise UsageError(f"manifest.entries: the mount at {path} is not supported; write mounts into the policy")


def refuse_user(user: str | User | None) -> None:
    if user is not None:
        name = user.name if isinstance(user, User) else user
        raise UsageError(f"nothing is done as {name!r}: a sandbox has one user, without privileges; leave `user` out")


class FumehoodSandboxSessionState(SandboxSessionState):
    """Has no policy: stored state must not decide what is allowed."""

    # The SDK finds the class by this literal.
    type: Literal["fumehood"] = "fumehood"  # pyright: ignore[reportIncompatibleVariableOverride]


class FumehoodSandboxSession(BaseSandboxSession):
    """Made by `FumehoodSandboxClient`. Its sandbox is open from `start` to `shutdown`.

    Files stay from command to command. What a command leaves in the background ends with it; a command that has not
    ended when `pty_exec_start` returns goes on.
    """

    def __init__(self, state: FumehoodSandboxSessionState, policy: Policy, sandboxes: Opener = USUAL) -> None:
        check_manifest(state.manifest)
        self.state = state
        self._policy, self._opener = policy, sandboxes
        self._sandbox: AnySandbox | None = None
        self._processes = SessionProcesses()
        self._lifetime = AsyncExitStack()

    @property
    def sandbox(self) -> AnySandbox:
        if self._sandbox is None:
            raise UsageError("the session is not running; use it inside `async with session:`, or start it first")
        return self._sandbox

    async def _ensure_backend_started(self) -> None:
        if self._sandbox is None:
            self._sandbox = await self._lifetime.enter_async_context(self._opener.sandbox(self._policy, keep_tmp=True))

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

    def supports_pty(self) -> bool:
        return True

    async def pty_exec_start(
        self,
        *command: str | Path,
        timeout: float | None = None,
        shell: bool | list[str] = True,
        user: str | User | None = None,
        tty: bool = False,
        yield_time_s: float | None = None,
        max_output_tokens: int | None = None,
    ) -> PtyExecUpdate:
        box, argv = self.sandbox, self._prepare_exec_command(*command, shell=shell, user=user)
        try:
            return await self._processes.start(
                box,
                argv,
                env=await self.state.manifest.environment.resolve(),
                cwd=self.state.manifest.root,
                timeout=shortened_timeout(box.policy, timeout),
                has_terminal=tty,
                yield_seconds=yield_time_s,
                max_output_tokens=max_output_tokens,
            )
        except SandboxError as error:
            raise ExecTransportError(command=argv, cause=error, message=str(error)) from error
        except (UsageError, DeniedError) as error:
            return PtyExecUpdate(None, f"{error}\n".encode(), DENIED_EXIT_CODE, None)

    async def pty_write_stdin(
        self,
        *,
        session_id: int,
        chars: str,
        yield_time_s: float | None = None,
        max_output_tokens: int | None = None,
    ) -> PtyExecUpdate:
        return await self._processes.write(
            session_id, chars, yield_seconds=yield_time_s, max_output_tokens=max_output_tokens
        )

    async def pty_terminate_all(self) -> None:
        await self._processes.end_all()

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
            return await pack(self.sandbox, root, skip)

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        root = self.state.manifest.root
        content = coerce_write_payload(path=Path(root), data=data).stream.read()
        with _writing(Path(root)):
            await unpack(self.sandbox, root, content)


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
