"""Started containers that nobody has used yet, so that opening a sandbox need not wait for one.

Each serves one sandbox and is thrown away. They are kept for designs that are used more than once: the second time that
one is asked for, the next is started behind it. Belongs to the backend's event loop, whose end is theirs.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from fumehood.backends.docker.container import Container
from fumehood.errors import FumehoodError

MOST_SPARE = 4
SPARE_SECONDS = 60.0
_MOST_REMEMBERED = 256

Start = Callable[[], Awaitable[Container]]


class ContainerPool:
    def __init__(self) -> None:
        self._spares: OrderedDict[str, tuple[Container, float]] = OrderedDict()
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        self._filling: set[str] = set()
        self._is_closed = False

    async def take(self, key: str, start: Start) -> Container:
        """A new one for the caller alone. Several callers wait side by side, never for each other."""
        spare = self._spares.pop(key, None)
        container = spare[0] if spare and spare[0].is_alive else None
        if key in self._seen:
            self._run(self._refill(key, start))
        self._remember(key)
        if spare and container is None:
            self._run(spare[0].close())
        return container or await start()

    def discard(self, container: Container) -> None:
        """One that was taken, and that its taker does not want any more."""
        self._run(container.close())

    def _remember(self, key: str) -> None:
        self._seen[key] = None
        self._seen.move_to_end(key)
        if len(self._seen) > _MOST_REMEMBERED:
            self._seen.popitem(last=False)

    async def _refill(self, key: str, start: Start) -> None:
        if key in self._filling or key in self._spares or self._is_closed:
            return
        self._filling.add(key)
        try:
            container = await start()
        except FumehoodError:
            return  # whoever opens the next sandbox meets the same trouble, and is told
        finally:
            self._filling.discard(key)
        if self._is_closed:
            await container.close()
            return
        self._spares[key] = (container, time.monotonic())
        if len(self._spares) > MOST_SPARE:
            _, (oldest, _) = self._spares.popitem(last=False)
            await oldest.close()
        asyncio.get_running_loop().call_later(SPARE_SECONDS, self._expire, key, container)

    def _expire(self, key: str, container: Container) -> None:
        if key in self._spares and self._spares[key][0] is container:
            del self._spares[key]
            self._run(container.close())

    def _run(self, work: Awaitable[None]) -> None:
        """Something that nobody waits for, but that does not outlive the pool."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        self._is_closed = True
        spares = [spare for spare, _ in self._spares.values()]
        self._spares.clear()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, *(spare.close() for spare in spares), return_exceptions=True)
