"""Who is connected. A client's place opens with its first call and closes when it leaves.

Each place lives in a task of its own: what opens in one task must not be closed by another, and a client that leaves is
not to wait for its sandbox, nor its sandbox for it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup
from mcp_types import LoggingLevel

from fumehood.errors import UsageError
from fumehood.integrations.mcp.contexts import RequestContext
from fumehood.integrations.mcp.place import Place, open_place
from fumehood.integrations.mcp.settings import Settings

MOST_CALLS = 8
"""Of one client at the same time; further ones wait."""
MOST_WAITING = 64


class Stay:
    """One place, from its opening to its end."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._leave, self._left = anyio.Event(), anyio.Event()
        self._opened, self._scope = anyio.Event(), anyio.CancelScope()
        self._place: Place | None = None
        self._problem: Exception | None = None

    @property
    def place(self) -> Place | None:
        """While it is open."""
        return self._place

    @property
    def has_failed(self) -> bool:
        return self._opened.is_set() and self._place is None

    async def opened(self) -> Place:
        """What is wrong when it cannot be opened is raised here, for whoever waits for it."""
        await self._opened.wait()
        if self._place is None:
            raise self._problem or UsageError("the client has left")
        return self._place

    async def live(self) -> None:
        try:
            with self._scope:
                async with open_place(self._settings) as place:
                    self._place = place
                    self._opened.set()
                    with anyio.CancelScope(shield=True):  # however the server ends, `end` is what ends this
                        await self._leave.wait()
        except Exception as error:
            if self._opened.is_set():
                self._settings.report(f"closing a sandbox failed: {error}")
            self._problem = error
        finally:
            self._place = None
            self._opened.set()
            self._left.set()

    async def end(self) -> None:
        """Also of an opening that takes its time."""
        self._leave.set()
        if not self._opened.is_set():
            self._scope.cancel()
        await self._left.wait()


class Client:
    def __init__(self, settings: Settings, tasks: TaskGroup) -> None:
        self._settings, self._tasks = settings, tasks
        self.log_level: LoggingLevel = "info"
        self._turns = anyio.Semaphore(MOST_CALLS)
        self._calls = 0
        self._is_over = False
        self._stay: Stay | None = None

    async def place(self) -> Place:
        """Where its calls are carried out. A call that is cancelled meanwhile leaves it to the next one."""
        if self._is_over:
            raise UsageError("the client has left")
        if self._stay is None or self._stay.has_failed:
            self._stay = Stay(self._settings)
            self._tasks.start_soon(self._stay.live)
        return await self._stay.opened()

    @property
    def open_place(self) -> Place | None:
        """The place, if anything was done there yet."""
        return self._stay.place if self._stay else None

    async def abandon(self, place: Place) -> None:
        """It is broken: the next call gets another one."""
        stay = self._stay
        if stay is not None and stay.place is place:
            self._stay = None
            await stay.end()

    async def close(self) -> None:
        self._is_over = True
        with anyio.CancelScope(shield=True):
            if self._stay is not None:
                await self._stay.end()

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
