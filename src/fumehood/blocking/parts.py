"""What belongs to a blocking sandbox, and blocks like it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self

from fumehood.blocking.driver import DrivenPart, blocking, blocking_iterator
from fumehood.concurrency.shared_loop import SharedLoop
from fumehood.policy import Seconds
from fumehood.sandbox.background import AsyncBackgroundRun
from fumehood.sandbox.files import AsyncFiles
from fumehood.sandbox.ports import AsyncExposedPort
from fumehood.sandbox.session import AsyncSession

if TYPE_CHECKING:
    from fumehood.sandbox.files.entries import FileChange
    from fumehood.sandbox.files.watch import AsyncWatch


class BackgroundRun(DrivenPart[AsyncBackgroundRun]):
    """An `AsyncBackgroundRun` whose methods block."""

    poll = blocking(AsyncBackgroundRun.poll)
    read = blocking(AsyncBackgroundRun.read)
    stream = blocking_iterator(AsyncBackgroundRun.stream)
    wait = blocking(AsyncBackgroundRun.wait)
    write = blocking(AsyncBackgroundRun.write)
    close_stdin = blocking(AsyncBackgroundRun.close_stdin)
    send_signal = blocking(AsyncBackgroundRun.send_signal)
    resize = blocking(AsyncBackgroundRun.resize)
    kill = blocking(AsyncBackgroundRun.kill)


class Session(DrivenPart[AsyncSession]):
    """An `AsyncSession` whose methods block."""

    def __enter__(self) -> Self:
        self.loop.call(self.target.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.loop.call(self.target.close)

    run = blocking(AsyncSession.run)
    stream = blocking_iterator(AsyncSession.stream)
    interrupt = blocking(AsyncSession.interrupt)
    restart = blocking(AsyncSession.restart)


class ExposedPort(DrivenPart[AsyncExposedPort]):
    """An `AsyncExposedPort` whose methods block."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.port} at {self.address})"

    @property
    def port(self) -> int:
        return self.target.port

    @property
    def url(self) -> str:
        return self.target.url

    @property
    def address(self) -> str:
        return self.target.address

    @property
    def headers(self) -> Mapping[str, str]:
        return self.target.headers

    @property
    def is_open(self) -> bool:
        return self.target.is_open

    wait_ready = blocking(AsyncExposedPort.wait_ready)
    close = blocking(AsyncExposedPort.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.loop.call(self.target.close)


class Files(DrivenPart[AsyncFiles]):
    """An `AsyncFiles` whose methods block."""

    write = blocking(AsyncFiles.write)
    read = blocking(AsyncFiles.read)
    list = blocking(AsyncFiles.list)
    outputs = blocking(AsyncFiles.outputs)
    stat = blocking(AsyncFiles.stat)
    remove = blocking(AsyncFiles.remove)
    rename = blocking(AsyncFiles.rename)
    mkdir = blocking(AsyncFiles.mkdir)
    upload = blocking(AsyncFiles.upload)
    download = blocking(AsyncFiles.download)


class Watch:
    """An `AsyncWatch` that is an iterator; changes count from its making."""

    def __init__(self, loop: SharedLoop, target: AsyncWatch) -> None:
        self.loop, self.target = loop, target

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> FileChange:
        change = self.loop.call(self.target.next)
        if change is None:
            raise StopIteration
        return change

    def poll(self, wait: Seconds = 0) -> list[FileChange]:
        """What has changed since the last look. Waits at most `wait` for a change; the watch goes on."""
        return self.loop.call(partial(self.target.poll, wait))

    def close(self) -> None:
        self.loop.call(self.target.close)
