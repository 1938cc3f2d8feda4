"""A sandbox on a worker, as the server has it: its snapshots are kept by the server, and travel by the file service.

The store of a tenant's snapshots and named sandboxes is the server's, whichever worker has the sandbox: a worker that
is lost takes none of them with it, and the next use of a name may be on another one.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import TracebackType
from typing import Self

import anyio

from fumehood.audit.trail import Trail
from fumehood.backends.interface import Conversation
from fumehood.cluster.workspace_calls import CHECK_REST, CONVERSE, END_PROGRAMS, RESTORE
from fumehood.errors import LostError
from fumehood.policy import AnyPolicy, Policy, read_policy
from fumehood.remote import calls
from fumehood.remote.files import open_file_service
from fumehood.remote.sandbox import RemoteSandbox
from fumehood.sandbox.audit.choice import open_trail
from fumehood.sandbox.files.artifacts import ArtifactTracker
from fumehood.sandbox.saved_state import SavedState
from fumehood.sandbox.workspace_state import WorkspaceState
from fumehood.server.fleet.placed_connection import CLOSE_SECONDS, PlacedConnection
from fumehood.server.sandboxes.placement import PlacementRequest
from fumehood.snapshots import Snapshot
from fumehood.tenant import Tenant


class WorkerSandbox(RemoteSandbox):
    """`state` is what it begins with, and the name under which it is kept; None for an empty workspace."""

    def __init__(self, request: PlacementRequest, connection: PlacedConnection, state: WorkspaceState | None) -> None:
        super().__init__(connection, keep_tmp=request.opening.keep_tmp)
        self.request, self._placed = request, connection
        self._kept = _KeptWorkspace(self)
        self._saved = SavedState(self._kept, None)
        self._is_empty = state is None
        if state is not None:
            self._saved.use(state)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        if self._is_empty:
            return await super().__aenter__()
        async with AsyncExitStack() as stack:
            await self._saved.acquire(stack, self._kept.trail)
            await super().__aenter__()
            try:
                await self._saved.restore(self._restoration, ArtifactTracker(self.policy, self._restoration))
            except BaseException as error:
                await super().__aexit__(type(error), error, None)
                raise
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        failure = error
        try:
            if error is None and self._saved.is_named:
                with anyio.CancelScope(shield=True):
                    with self._placed.ending_in(CLOSE_SECONDS):
                        await calls.ask(self._open_conversations(), {"do": END_PROGRAMS})
                    await self._saved.save_at_end(self._kept.converse)
        except BaseException as problem:
            failure = problem
            raise
        finally:
            try:
                await super().__aexit__(type(failure) if failure else None, failure, None)
            finally:
                await self._stack.aclose()

    async def change_policy(self, policy: AnyPolicy) -> None:
        """By the server's own word: what the worker says would hold for forks and the next use of a name."""
        wanted, before = read_policy(policy), self.policy
        await super().change_policy(wanted)
        said, self.policy = self.policy, wanted
        if said.digest != wanted.digest:
            self.policy = before
            raise LostError("the worker has another policy than it was asked for; close this sandbox")

    async def snapshot(self, name: str | None = None) -> Snapshot:
        await self._check_rest("a snapshot")
        return await self._saved.snapshot(name)

    async def save(self) -> Snapshot:
        await self._check_rest("saving")
        return await self._saved.save()

    async def fork_states(self, count: int) -> list[WorkspaceState]:
        """What copies of it begin with."""
        await self._check_rest("forking")
        return await self._saved.fork(count)

    async def _check_rest(self, what: str) -> None:
        message = await calls.ask(self._open_conversations(), {"do": CHECK_REST, "what": what})
        self._kept.open_sessions = int(message.header["sessions"])

    def _restoration(self) -> AbstractAsyncContextManager[Conversation]:
        return open_file_service(self._open_conversations(), RESTORE)

    def workspace_service(self) -> AbstractAsyncContextManager[Conversation]:
        """The file service, about every file."""
        return open_file_service(self._open_conversations(), CONVERSE)


class _KeptWorkspace:
    """What the store has to know of it."""

    def __init__(self, box: WorkerSandbox) -> None:
        self._box = box
        self._trail: Trail | None = None
        self.open_sessions = 0

    @property
    def policy(self) -> Policy:
        return self._box.policy if self._box.is_open else self._box.request.policy

    @property
    def tenant(self) -> Tenant:
        return self._box.request.tenant

    @property
    def trail(self) -> Trail:
        if self._trail is None:
            request = self._box.request
            self._trail = open_trail(request.policy, request.trail, request.tenant)
        return self._trail

    def converse(self) -> AbstractAsyncContextManager[Conversation]:
        return self._box.workspace_service()
