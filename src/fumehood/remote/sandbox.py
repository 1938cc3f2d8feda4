"""A sandbox that is elsewhere, with the methods of one that is here."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack, cast

import anyio

from fumehood.audit.trail import OFF, Trail
from fumehood.backends.interface import Conversation as FileConversation
from fumehood.errors import LostError, UsageError
from fumehood.events import Event
from fumehood.policy import AnyPolicy, Seconds, deny_all, read_seconds
from fumehood.policy.secret import GivenSecrets, SecretSource
from fumehood.remote import calls
from fumehood.remote.background import RemoteBackgroundRun
from fumehood.remote.connection import SandboxConnection
from fumehood.remote.conversations import Conversations
from fumehood.remote.files import open_file_service
from fumehood.remote.options import pack_request
from fumehood.remote.policies import unpack_policy, wanted_policy
from fumehood.remote.ports import RemoteExposedPort
from fumehood.remote.session import RemoteSession
from fumehood.remote.values import unpack_installation, unpack_snapshot
from fumehood.results import RunResult
from fumehood.sandbox.audit import SandboxAudit
from fumehood.sandbox.files import AsyncFiles
from fumehood.sandbox.files.artifacts import ArtifactTracker
from fumehood.sandbox.files.paths import sandbox_path
from fumehood.sandbox.ports import check_port
from fumehood.sandbox.request import RunOptions, make_live_request, make_request, options_of_runs

if TYPE_CHECKING:
    from fumehood.sandbox.files.watch import AsyncWatch
    from fumehood.sandbox.installation import Installation
    from fumehood.snapshots import Snapshot


class RemoteSandbox:
    """As `AsyncSandbox`; made by `Server.sandbox`. Its policy, its enforcement and its audit log are where it runs."""

    def __init__(self, connection: SandboxConnection, *, keep_tmp: bool = False) -> None:
        self._connection = connection
        self._keeps_tmp = keep_tmp
        self._is_open = False
        self.policy = deny_all()
        self._files: AsyncFiles | None = None
        self._watches: list[AsyncWatch] = []
        self._ports: list[RemoteExposedPort] = []

    @property
    def files(self) -> AsyncFiles:
        """Made when it is used: of the sandboxes that a server has at its workers, few have their files looked at."""
        if self._files is None:
            artifacts = ArtifactTracker(self.policy, self._converse)
            self._files = AsyncFiles(self.policy, self._converse, SandboxAudit(), artifacts, keeps_tmp=self._keeps_tmp)
        return self._files

    async def __aenter__(self) -> Self:
        if self._is_open:
            raise UsageError("this sandbox is open already; make another one for a second place")
        await self._connection.open()
        self.policy = self._connection.opened.policy
        self._files = None
        self._is_open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_open = False
        with anyio.CancelScope(shield=True):
            for part in (*self._watches, *self._ports):
                with suppress(LostError):
                    await part.close()
            await self._connection.close(is_failing=error is not None)

    @property
    def is_open(self) -> bool:
        return self._is_open

    @property
    def id(self) -> str:
        """The server's name for it."""
        self._open_conversations()
        return self._connection.opened.sandbox

    @property
    def enforcement(self) -> Mapping[str, str]:
        """Control -> the mechanism that enforces it there; `place` is the server."""
        self._open_conversations()
        return {**self._connection.opened.enforcement, "place": f"{self._connection.place}, sandbox {self.id}"}

    @property
    def secrets(self) -> SecretSource:
        """The values of its policy's secrets are the server's."""
        return GivenSecrets()

    @property
    def trail(self) -> Trail:
        """The sandbox's own records are the server's; a caller's are written to no log from here."""
        return OFF

    @options_of_runs()
    async def run(self, code: str | bytes | None = None, **options: Unpack[RunOptions]) -> RunResult:
        """Run code, or a command with `argv`, to its end. A program that fails is a result, not an exception."""
        conversations = self._checked(code, options)
        return await calls.run(conversations, {"do": "run"}, code, options)

    @options_of_runs()
    async def stream(
        self, code: str | bytes | None = None, **options: Unpack[RunOptions]
    ) -> AsyncGenerator[Event, None]:
        """Runs code and yields output as it appears. The last event is `Finished`; leaving early ends the run."""
        conversations = self._checked(code, options)
        async with aclosing(calls.stream_run(conversations, {"do": "stream"}, code, options)) as events:
            async for event in events:
                yield event

    @options_of_runs()
    async def start(
        self, code: str | bytes | None = None, *, terminal: tuple[int, int] | None = None, **options: Unpack[RunOptions]
    ) -> RemoteBackgroundRun:
        """Starts a run in the background, without waiting for its end; its input stays open for `write`."""
        conversations = self._open_conversations()
        make_live_request(self.policy, code, terminal, options)
        if isinstance(options.get("stdin"), int):
            raise UsageError("stdin of a run in the background at a server is data; write to it for anything else")
        request, body = pack_request(code, options)
        message = await calls.ask(conversations, {"do": "start", "terminal": terminal} | request, body)
        return RemoteBackgroundRun(conversations, message.header["started"])

    def session(self) -> RemoteSession:
        """`async with box.session() as session`: Python state that lives on between runs, in this workspace."""
        return RemoteSession(self._open_conversations(), self.policy)

    async def send_signal(self, number: int | signal.Signals) -> None:
        """Send a signal to the first process of each run under way."""
        await calls.ask(self._open_conversations(), {"do": "send_signal", "signal": int(number)})

    def watch(
        self, path: str | os.PathLike[str] = "", *, recursive: bool = True, timeout: Seconds | None = None
    ) -> AsyncWatch:
        """`async for change in box.watch("out")`: what is created, modified, deleted and renamed in a folder."""
        from fumehood.sandbox.files.watch import AsyncWatch

        self._open_conversations()
        place = sandbox_path(path, keeps_tmp=self._keeps_tmp)
        seconds = None if timeout is None else read_seconds(timeout)
        watch = AsyncWatch(self._converse, place, self.policy, recursive=recursive, timeout_seconds=seconds)
        self._watches = [*(other for other in self._watches if not other.is_closed), watch]
        return watch

    async def install(
        self, *packages: str, allow_sdists: bool = False, progress: Callable[[str], None] | None = None
    ) -> Installation:
        """Installs packages of Python, such as "pandas==2.3.*", for every later run and the sessions under way."""
        header = {"do": "install", "packages": list(packages), "allow_sdists": allow_sdists}
        async with calls.call(self._open_conversations(), header) as conversation:
            while "progress" in (message := await calls.expect_answer(conversation)).header:
                if progress is not None:
                    progress(message.header["progress"])
        return unpack_installation(message.header["installation"])

    async def snapshot(self, name: str | None = None) -> Snapshot:
        """The workspace as it is now, kept at the server until it is removed or too old. No program may be running."""
        message = await calls.ask(self._open_conversations(), {"do": "snapshot", "name": name})
        return unpack_snapshot(message.header["snapshot"])

    async def save(self) -> Snapshot:
        """Keeps the state of a named sandbox now, and not only when the block ends."""
        message = await calls.ask(self._open_conversations(), {"do": "save"})
        return unpack_snapshot(message.header["snapshot"])

    async def fork(self, count: int = 1) -> list[RemoteSandbox]:
        """Sandboxes with the same policy that begin with this workspace, each to be opened like this one.

        The server keeps them for a while: as long as it keeps a sandbox that is not used.
        """
        message = await calls.ask(self._open_conversations(), {"do": "fork", "count": count})
        forks = cast("list[str]", message.header.get("forks", []))
        return [RemoteSandbox(self._connection.beside({"fork": name}), keep_tmp=self._keeps_tmp) for name in forks]

    async def expose(self, port: int) -> RemoteExposedPort:
        """Publishes a port of the programs inside at an address of this machine's loopback, which wants a token.

        Connections go through the server, which asks for the token and records each request.
        """
        return await self._expose(port, None)

    async def expose_to(self, port: int, client_port: int) -> RemoteExposedPort:
        """As `expose`, for a caller elsewhere; see `AsyncSandbox.expose_to`."""
        return await self._expose(port, client_port)

    async def _expose(self, port: int, client_port: int | None) -> RemoteExposedPort:
        conversations = self._open_conversations()
        check_port(self.policy, port, ())
        exposed = await RemoteExposedPort(conversations, port, client_port).open()
        self._ports = [*(other for other in self._ports if other.is_open), exposed]
        return exposed

    async def change_policy(self, policy: AnyPolicy) -> None:
        """Other network rules from now on, for runs under way too. Everything else of a sandbox is as it was opened.

        A key that may not write policies can take rules away, and add none.
        """
        header = {"do": "change_policy", "policy": wanted_policy(policy)}
        message = await calls.ask(self._open_conversations(), header)
        self.policy = unpack_policy(message.header.get("policy"))
        for exposed in self._ports:
            if exposed.port not in self.policy.network.publish:
                await exposed.close()

    def _checked(self, code: str | bytes | None, options: RunOptions) -> Conversations:
        """Mistakes are found here, with the same words as those of a sandbox that is here."""
        conversations = self._open_conversations()
        make_request(self.policy, code, options)
        return conversations

    def _converse(self) -> AbstractAsyncContextManager[FileConversation]:
        return open_file_service(self._open_conversations())

    def _open_conversations(self) -> Conversations:
        if not self._is_open:
            raise UsageError("the sandbox is not open; use it inside `async with server.sandbox(policy) as box:`")
        return self._connection.conversations
