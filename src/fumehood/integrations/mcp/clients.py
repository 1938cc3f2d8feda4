"""The clients that are connected. A client's sandbox opens with its first call and closes when the client disconnects.

Each sandbox lives in a task of its own: anyio requires that a context is closed by the task that opened it, and a
client that disconnects must not wait for its sandbox.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio
from anyio.abc import TaskGroup
from mcp_types import LoggingLevel

from fumehood.errors import UsageError
from fumehood.integrations.mcp.approvals import ClientApprovals
from fumehood.integrations.mcp.context import RequestContext, ToolServerSettings
from fumehood.integrations.mcp.tools import Sessions, all_tools
from fumehood.sandbox.interface import AnySandbox
from fumehood.tools import Toolbox
from fumehood.tools.filters import Pipeline

MOST_CALLS = 8
"""The calls that one client may have under way; further ones wait."""
MOST_WAITING = 64


@dataclass(frozen=True, slots=True)
class ClientSandbox:
    """One client's sandbox, with its toolbox, filters and approvals."""

    sandbox: AnySandbox
    toolbox: Toolbox
    filters: Pipeline
    approvals: ClientApprovals | None


@asynccontextmanager
async def open_client_sandbox(settings: ToolServerSettings) -> AsyncIterator[ClientSandbox]:
    sessions = Sessions()
    async with settings.sandboxes.sandbox(settings.policy, gated=True, progress=settings.report) as box:
        approvals = ClientApprovals(settings.policy, box.trail) if settings.policy.approvals else None
        filters = Pipeline(settings.policy, trail=box.trail, source=box.secrets)
        try:
            toolbox = Toolbox(box, *all_tools(sessions, settings.policy), gate=approvals, filters=filters)
            yield ClientSandbox(box, toolbox, filters, approvals)
        finally:
            with anyio.CancelScope(shield=True):
                await sessions.close()


class SandboxTask:
    """The task that opens a sandbox, keeps it and closes it."""

    def __init__(self, settings: ToolServerSettings) -> None:
        self._settings = settings
        self._close, self._closed = anyio.Event(), anyio.Event()
        self._opened, self._scope = anyio.Event(), anyio.CancelScope()
        self._sandbox: ClientSandbox | None = None
        self._problem: Exception | None = None

    @property
    def sandbox(self) -> ClientSandbox | None:
        """While it is open."""
        return self._sandbox

    @property
    def has_failed(self) -> bool:
        return self._opened.is_set() and self._sandbox is None

    async def opened(self) -> ClientSandbox:
        """Raises what went wrong if it could not be opened."""
        await self._opened.wait()
        if self._sandbox is None:
            raise self._problem or UsageError("the client has disconnected")
        return self._sandbox

    async def run(self) -> None:
        try:
            with self._scope:
                async with open_client_sandbox(self._settings) as sandbox:
                    self._sandbox = sandbox
                    self._opened.set()
                    with anyio.CancelScope(shield=True):  # however the server ends, `end` is what ends this
                        await self._close.wait()
        except Exception as error:
            if self._opened.is_set():
                self._settings.report(f"closing a sandbox failed: {error}")
            self._problem = error
        finally:
            self._sandbox = None
            self._opened.set()
            self._closed.set()

    async def end(self) -> None:
        """Closes the sandbox, or cancels its opening, and waits until it is gone."""
        self._close.set()
        if not self._opened.is_set():
            self._scope.cancel()
        await self._closed.wait()


class Client:
    def __init__(self, settings: ToolServerSettings, tasks: TaskGroup) -> None:
        self._settings, self._tasks = settings, tasks
        self.log_level: LoggingLevel = "info"
        self._turns = anyio.Semaphore(MOST_CALLS)
        self._calls = 0
        self._is_closed = False
        self._task: SandboxTask | None = None

    async def sandbox(self) -> ClientSandbox:
        """The sandbox for its calls, opened by the first. A call that is cancelled meanwhile leaves it to the next."""
        if self._is_closed:
            raise UsageError("the client has disconnected")
        if self._task is None or self._task.has_failed:
            self._task = SandboxTask(self._settings)
            self._tasks.start_soon(self._task.run)
        return await self._task.opened()

    @property
    def open_sandbox(self) -> ClientSandbox | None:
        """The sandbox, if a call has opened it."""
        return self._task.sandbox if self._task else None

    async def abandon(self, sandbox: ClientSandbox) -> None:
        """Close a sandbox that has failed: the next call gets another one."""
        task = self._task
        if task is not None and task.sandbox is sandbox:
            self._task = None
            await task.end()

    async def close(self) -> None:
        self._is_closed = True
        with anyio.CancelScope(shield=True):
            if self._task is not None:
                await self._task.end()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        if self._calls >= MOST_CALLS + MOST_WAITING:
            raise UsageError(f"{self._calls} calls are under way already; wait for some of them to end")
        self._calls += 1
        try:
            async with self._turns:
                yield
        finally:
            self._calls -= 1


class Clients:
    """Made by `open_clients`. A connection without a name is the only one, as over standard input."""

    def __init__(self, settings: ToolServerSettings, tasks: TaskGroup) -> None:
        self.settings = settings
        self._tasks = tasks
        self._known: dict[str | None, Client] = {}

    def of(self, context: RequestContext) -> Client:
        # The SDK gives handlers no other way to learn which connection a request came on, and when that one ends.
        connection = context.session._connection  # pyright: ignore[reportPrivateUsage]
        name = connection.session_id
        if name not in self._known:
            self._known[name] = Client(self.settings, self._tasks)
            if name is not None:
                connection.exit_stack.push_async_callback(self._forget, name)
        return self._known[name]

    async def _forget(self, name: str) -> None:
        if client := self._known.pop(name, None):
            await client.close()

    async def close(self) -> None:
        while self._known:
            await self._known.popitem()[1].close()


@asynccontextmanager
async def open_clients(settings: ToolServerSettings) -> AsyncIterator[Clients]:
    """Nothing of any client is left when the block ends."""
    async with anyio.create_task_group() as tasks:
        clients = Clients(settings, tasks)
        try:
            yield clients
        finally:
            with anyio.CancelScope(shield=True):
                await clients.close()
