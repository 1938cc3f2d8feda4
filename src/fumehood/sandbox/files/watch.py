"""`box.watch`: what changes in a folder of the sandbox, as it changes.

The host asks, and the service inside answers with what is different since the last answer. So nothing is queued here,
however much a program changes and however slow the caller is.
"""

from __future__ import annotations

from collections import deque
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

import anyio

from fumehood.backends.interface import Conversation
from fumehood.errors import SandboxError
from fumehood.guest.contract.limits import WATCH_SECONDS
from fumehood.policy import Policy, Seconds, read_seconds
from fumehood.sandbox.files import protocol
from fumehood.sandbox.files.entries import FileChange, RawChange
from fumehood.sandbox.files.errors import Converse, FileRefusal, explained
from fumehood.sandbox.files.paths import joined, shown


class AsyncWatch:
    """`async for change in box.watch("out")`. Ends with the sandbox, with `close`, or after `timeout` without a change.

    Changes count from the first one that is asked for, or from the beginning of `async with`.
    """

    def __init__(
        self, converse: Converse, place: str, policy: Policy, *, recursive: bool, timeout_seconds: float | None
    ) -> None:
        self._converse, self.place, self._policy = converse, place, policy
        self._recursive, self._timeout_seconds = recursive, timeout_seconds
        self._stack = AsyncExitStack()
        self._conversation: Conversation | None = None
        self._pending: deque[FileChange] = deque()
        self._turn = anyio.Lock()
        self._scope: anyio.CancelScope | None = None
        self.is_closed = False

    async def __aenter__(self) -> Self:
        await self.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> FileChange:
        change = await self.next()
        if change is None:
            raise StopAsyncIteration
        return change

    async def begin(self) -> None:
        """Changes from now on are seen."""
        async with self._turn:
            if self._conversation is None and not self.is_closed:
                await self._open()

    async def next(self) -> FileChange | None:
        """The next change; None at the end."""
        async with self._turn:
            with anyio.CancelScope() as self._scope:
                if not self._pending and not self.is_closed:
                    await self._fetch()
            self._scope = None
        if not self._pending:
            await self.close()
            return None
        return self._pending.popleft()

    async def poll(self, wait: Seconds = 0) -> list[FileChange]:
        """What has changed since the last look. Waits at most `wait` for a change; the watch goes on."""
        seconds = read_seconds(wait, "wait") if wait else 0.0
        async with self._turn:
            with anyio.CancelScope() as self._scope:
                if not self._pending and not self.is_closed:
                    await self._fetch_within(seconds)
            self._scope = None
        changes = [*self._pending]
        self._pending.clear()
        return changes

    async def close(self) -> None:
        """Ends the watch, also while another task waits for its next change."""
        self.is_closed = True
        if self._scope is not None:
            self._scope.cancel()
        with anyio.CancelScope(shield=True):
            async with self._turn:
                self._conversation = None
                await self._stack.aclose()

    async def _open(self) -> None:
        async with AsyncExitStack() as stack:
            talk = explained(self._converse, "watch", self.place, self._policy)
            conversation = await stack.enter_async_context(talk)
            await protocol.watch(conversation, self.place, recursive=self._recursive)
            self._stack, self._conversation = stack.pop_all(), conversation

    async def _fetch(self) -> None:
        until = None if self._timeout_seconds is None else anyio.current_time() + self._timeout_seconds
        while not self._pending:
            left = WATCH_SECONDS if until is None else min(WATCH_SECONDS, until - anyio.current_time())
            if left <= 0:
                return
            await self._ask(left)

    async def _fetch_within(self, seconds: float) -> None:
        """At least one look, and all that it has found."""
        until, left = anyio.current_time() + seconds, seconds
        while not self._pending and left >= 0:
            await self._ask(min(WATCH_SECONDS, left))
            left = until - anyio.current_time()

    async def _ask(self, wait_seconds: float) -> None:
        if self._conversation is None:
            await self._open()
        assert self._conversation is not None
        try:
            found = await protocol.changes(self._conversation, wait=wait_seconds)
        except FileRefusal as error:
            raise SandboxError(f"watching {shown(self.place)} failed in the sandbox: {error.reason}") from None
        self._pending.extend(map(self._change, found))

    def _change(self, raw: RawChange) -> FileChange:
        kind, path, old = raw
        return FileChange(kind, joined(self.place, path) if path else self.place, old and joined(self.place, old))


class Watches:
    """The watches of one sandbox, which end with it."""

    def __init__(self, converse: Converse, policy: Policy) -> None:
        self._converse, self._policy = converse, policy
        self._open: list[AsyncWatch] = []

    def watch(self, place: str, *, recursive: bool, timeout: Seconds | None) -> AsyncWatch:
        seconds = None if timeout is None else read_seconds(timeout)
        watch = AsyncWatch(self._converse, place, self._policy, recursive=recursive, timeout_seconds=seconds)
        self._open = [*(other for other in self._open if not other.is_closed), watch]
        return watch

    async def close(self) -> None:
        for watch in self._open:
            await watch.close()
