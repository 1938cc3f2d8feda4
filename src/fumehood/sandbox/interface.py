"""What agents, tools, runtimes and adapters need of a sandbox, wherever it runs, and of whoever opens one.

`AsyncSandbox` is one that runs here. One that is elsewhere has its policy, its gateway and its audit log there; its
`trail` may be off, and then callers record what they do in logs of their own.
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, TypedDict, Unpack

from fumehood.audit.trail import Trail
from fumehood.events import Event
from fumehood.policy import AnyPolicy, Policy, Seconds
from fumehood.policy.secret import SecretSource
from fumehood.results import RunResult
from fumehood.sandbox.files import AsyncFiles
from fumehood.sandbox.request import RunOptions

if TYPE_CHECKING:
    from fumehood.sandbox.background import NewOutput
    from fumehood.sandbox.files.watch import AsyncWatch
    from fumehood.sandbox.installation import Installation
    from fumehood.snapshots import Snapshot


class AnyBackgroundRun(Protocol):
    """As `AsyncBackgroundRun`."""

    async def poll(self) -> RunResult | None: ...

    async def read(self, *, wait: Seconds = 0) -> NewOutput: ...

    def stream(self) -> AsyncGenerator[Event, None]: ...

    async def wait(self) -> RunResult: ...

    async def write(self, data: bytes | str) -> None: ...

    async def close_stdin(self) -> None: ...

    async def send_signal(self, number: int | signal.Signals) -> None: ...

    async def resize(self, columns: int, rows: int) -> None: ...

    async def kill(self) -> RunResult: ...


class AnySession(Protocol):
    """As `AsyncSession`."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    async def run(self, code: str | bytes, **options: Unpack[RunOptions]) -> RunResult: ...

    def stream(self, code: str | bytes, **options: Unpack[RunOptions]) -> AsyncGenerator[Event, None]: ...

    async def interrupt(self) -> None: ...

    async def restart(self) -> None: ...

    async def close(self) -> None: ...


class AnyExposedPort(Protocol):
    """As `AsyncExposedPort`."""

    @property
    def port(self) -> int: ...

    @property
    def url(self) -> str: ...

    @property
    def address(self) -> str: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    @property
    def is_open(self) -> bool: ...

    async def wait_ready(self, timeout: Seconds | None = 30) -> None: ...

    async def close(self) -> None: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


class AnySandbox(Protocol):
    """An open sandbox, here or elsewhere; the methods are those of `AsyncSandbox`."""

    @property
    def policy(self) -> Policy: ...

    @property
    def files(self) -> AsyncFiles: ...

    @property
    def secrets(self) -> SecretSource:
        """Values of the policy's secrets and canaries, as far as this process knows them, to be kept out of texts."""
        ...

    @property
    def trail(self) -> Trail: ...

    @property
    def enforcement(self) -> Mapping[str, str]: ...

    @property
    def is_open(self) -> bool: ...

    async def run(self, code: str | bytes | None = None, **options: Unpack[RunOptions]) -> RunResult: ...

    def stream(self, code: str | bytes | None = None, **options: Unpack[RunOptions]) -> AsyncGenerator[Event, None]: ...

    async def start(
        self, code: str | bytes | None = None, *, terminal: tuple[int, int] | None = None, **options: Unpack[RunOptions]
    ) -> AnyBackgroundRun: ...

    def session(self) -> AnySession: ...

    async def send_signal(self, number: int | signal.Signals) -> None: ...

    def watch(
        self, path: str | os.PathLike[str] = "", *, recursive: bool = True, timeout: Seconds | None = None
    ) -> AsyncWatch: ...

    async def install(
        self, *packages: str, allow_sdists: bool = False, progress: Callable[[str], None] | None = None
    ) -> Installation: ...

    async def expose(self, port: int) -> AnyExposedPort: ...

    async def change_policy(self, policy: AnyPolicy) -> None: ...

    async def snapshot(self, name: str | None = None) -> Snapshot: ...

    async def save(self) -> Snapshot: ...


class SandboxOptions(TypedDict, total=False):
    """What can be said of a sandbox besides its policy, wherever it is opened; see `AsyncSandbox`."""

    packages: Sequence[str]
    session: bool
    progress: Callable[[str], None] | None
    learn: bool
    gated: bool
    keep_tmp: bool
    snapshot: Snapshot | str | None


class Opener(Protocol):
    """Opens sandboxes: here (`sandbox.opener`), for a tenant, or at a server."""

    def sandbox(
        self, policy: AnyPolicy | None = None, **options: Unpack[SandboxOptions]
    ) -> AbstractAsyncContextManager[AnySandbox]: ...
