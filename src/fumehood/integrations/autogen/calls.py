"""The calls of an executor that are under way, so that each of them can be ended from outside."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial

import anyio
from autogen_core import CancellationToken


class Calls:
    def __init__(self) -> None:
        self._under_way: dict[anyio.CancelScope, anyio.Event] = {}

    @contextmanager
    def begin(self, token: CancellationToken) -> Iterator[anyio.CancelScope]:
        """Its scope is cancelled by the token, from whatever thread, and by `end`."""
        over = anyio.Event()
        with anyio.CancelScope() as scope:
            self._under_way[scope] = over
            # Not `link_future`: a token may be cancelled in a thread, where a future must not be touched.
            token.add_callback(partial(_cancel_soon, asyncio.get_running_loop(), scope))
            try:
                yield scope
            finally:
                del self._under_way[scope]
                over.set()

    async def end(self) -> None:
        """All of them, and wait until they have ended."""
        for scope, over in [*self._under_way.items()]:
            scope.cancel()
            await over.wait()


def _cancel_soon(loop: asyncio.AbstractEventLoop, scope: anyio.CancelScope) -> None:
    with suppress(RuntimeError):  # a token outlives its calls, and perhaps their loop; then there is nothing to cancel
        loop.call_soon_threadsafe(scope.cancel)
