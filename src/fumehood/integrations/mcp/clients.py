"""Who is connected. A client's place opens with its first call and closes when it leaves.

Each place lives in a task of its own: what opens in one task must not be closed by another, and a client that leaves is
not to wait for its sandbox, nor its sandbox for it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup, TaskStatus
from mcp_types import LoggingLevel

from fumehood.errors import UsageError
from fumehood.integrations.mcp.contexts import RequestContext
from fumehood.integrations.mcp.place import Place, open_place
from fumehood.integrations.mcp.settings import Settings

MOST_CALLS = 8
"""Of one client at the same time; further ones wait."""
MOST_WAITING = 64


class Client:
    def __init__(self, settings: Settings, tasks: TaskGroup) -> None:
        self._settings, self._tasks = settings, tasks
        self.log_level: LoggingLevel = "info"
        self._opening = anyio.Lock()
        self._turns = anyio.Semaphore(MOST_CALLS)
        self._waiting = 0
        self._is_over = False
        self._place: Place | None = None
        self._leave, self._left = anyio.Event(), anyio.Event()

    async def place(self) -> Place:
        """Where its calls are carried out; what is wrong when it cannot be opened is raised here."""
        async with self._opening:
            if self._is_over:
                raise UsageError("the client has left")
            if self._place is None:
                self._leave, self._left = anyio.Event(), anyio.Event()
                place: Place = await self._tasks.start(self._live, self._leave, self._left)
                self._place = place
            return self._place

    @property
    def open_place(self) -> Place | None:
        """The place, if anything was done there yet."""
        return self._place

    async def abandon(self, place: Place) -> None:
        """It is broken: the next call gets another one."""
        async with self._opening:
            if self._place is place:
                await self._close()

    async def close(self) -> None:
        self._is_over = True
        with anyio.CancelScope(shield=True):
            async with self._opening:
                await self._close()

    async def _close(self) -> None:
        if self._place is not None:
            self._leave.set()
            await self._left.wait()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        if self._waiting >= MOST_WAITING:
            raise UsageError(f"{MOST_CALLS + MOST_WAITING} calls are under way already; wait for some of them to end")
        self._waiting += 1
        try:
            await self._turns.acquire()
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._turns.release()

    async def _live(
        self, leave: anyio.Event, left: anyio.Event, *, task_status: TaskStatus[Place] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        is_open = False
        try:
            async with open_place(self._settings) as place:
                task_status.started(place)
                is_open = True
                with anyio.CancelScope(shield=True):  # however the server ends, `close` is what ends this
                    await leave.wait()
        except Exception as error:
            if not is_open:
                raise
            self._settings.report(f"closing a sandbox failed: {error}")
        finally:
            self._place = None
            left.set()


class Clients:
    """Made by `open_clients`. A connection without a name is the only one, as on standard input."""

    def __init__(self, settings: Settings, tasks: TaskGroup) -> None:
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
async def open_clients(settings: Settings) -> AsyncIterator[Clients]:
    """Nothing of any client is left when the block ends."""
    async with anyio.create_task_group() as tasks:
        clients = Clients(settings, tasks)
        try:
            yield clients
        finally:
            with anyio.CancelScope(shield=True):
                await clients.close()
